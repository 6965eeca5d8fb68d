"""Prototxt files: what is said when they cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from bpt.errors import PrototxtError
from bpt.proto import bpt_pb2 as pb
from bpt.proto.text import parse_text, read_text, to_text
from tests.proto.golden import INPUTS


def complaint(path: Path | str) -> str:
    with pytest.raises(PrototxtError) as caught:
        read_text(path, pb.NetParameter)
    return str(caught.value)


def test_reads_a_file() -> None:
    parsed = read_text(INPUTS / "lenet_train_test.prototxt", pb.NetParameter)
    assert parsed.message.name == "LeNetTiny"
    assert parsed.path == str(INPUTS / "lenet_train_test.prototxt")
    assert parse_text(to_text(parsed.message), pb.NetParameter).message == parsed.message


def test_missing_file_names_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "lenet_solver.prototxt").touch()
    missing = tmp_path / "lenet_solvr.prototxt"
    assert complaint(missing) == f'{missing}: no such file; did you mean "lenet_solver.prototxt"?'


def test_missing_file_without_a_near_one(tmp_path: Path) -> None:
    (tmp_path / "a.prototex").mkdir()  # no file
    assert complaint(tmp_path / "a.prototxt") == f"{tmp_path}/a.prototxt: no such file"
    assert complaint(tmp_path / "b" / "a.prototxt") == (
        f'{tmp_path}/b/a.prototxt: no such file: there is no folder "{tmp_path}/b"'
    )


def test_name_that_cannot_be_a_file(tmp_path: Path) -> None:
    assert complaint("") == ": is a folder, not a file"
    assert complaint("a\0b") == "a\0b: is not a file name"
    assert "cannot be read: " in complaint("x" * 5000)
    assert "cannot be read: " in complaint(INPUTS / "solver.prototxt" / "x")


def test_folder(tmp_path: Path) -> None:
    assert complaint(tmp_path) == f"{tmp_path}: is a folder, not a file"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("lenet_iter_30.caffemodel", "a binary file of weights (caffemodel)"),
        ("lenet_iter_30.solverstate", "a binary solver state (solverstate)"),
        ("mean.binaryproto", "a binary blob, such as a mean image (binaryproto)"),
        ("lenet_opts_iter_30.caffemodel.h5", "an HDF5 file"),
    ],
)
def test_binary_file_is_named(name: str, kind: str) -> None:
    assert complaint(INPUTS / name) == f"{INPUTS / name}: is {kind}, not a prototxt"


def test_other_contents(tmp_path: Path) -> None:
    path = tmp_path / "a.prototxt"
    path.write_bytes(b"\x00\x01\x02")
    assert complaint(path) == f"{path}: is a file of an unknown kind, not a prototxt"
    path.write_text('name: "a"', encoding="utf-16")
    assert complaint(path) == f"{path}: is UTF-16; save the file as UTF-8"
    path.write_text('\nname: "café"', encoding="latin-1")
    assert complaint(path) == f"{path}:2:11: byte 0xe9 is not UTF-8; save the file as UTF-8"


def test_harmless_contents(tmp_path: Path) -> None:
    path = tmp_path / "a.prototxt"
    path.write_bytes(b"")
    assert read_text(path, pb.NetParameter).message == pb.NetParameter()
    path.write_bytes('\ufeffname: "é"\r\n'.encode() + b"# caf\xe9\r\n")
    parsed = read_text(path, pb.NetParameter)
    assert parsed.message.name == "é"
    assert parsed.origins["name",].column == 1
