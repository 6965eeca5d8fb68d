"""Binary files in and out."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from bpt.errors import FileError, WriteError
from bpt.proto import binary
from bpt.proto import bpt_pb2 as pb
from bpt.proto.binary import read_binary, write_binary
from tests.proto.golden import GOLDEN, INPUTS

WEIGHTS = INPUTS / "lenet_iter_30.caffemodel"
STATE = INPUTS / "lenet_iter_30.solverstate"


def complaint(path: Path, message_class: type = pb.NetParameter) -> str:
    with pytest.raises(FileError) as caught:
        read_binary(path, message_class)
    return str(caught.value).removeprefix(f"{path}: ")


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("**/*.caffemodel")), ids=lambda path: path.name)
def test_recorded_weights_round_trip(path: Path, tmp_path: Path) -> None:
    net = read_binary(path, pb.NetParameter)
    assert net.layer or net.layers
    write_binary(tmp_path / "copy", net)
    assert (tmp_path / "copy").read_bytes() == path.read_bytes()


def test_recorded_state() -> None:
    state = read_binary(STATE, pb.SolverState)
    assert (state.iter, state.learned_net, len(state.history)) == (30, "lenet_iter_30.caffemodel", 8)


def test_recorded_mean() -> None:
    mean = read_binary(INPUTS / "mean.binaryproto", pb.BlobProto)
    assert len(mean.data) == mean.num * mean.channels * mean.height * mean.width


def test_missing_folder_and_empty_files(tmp_path: Path) -> None:
    (tmp_path / "net.caffemodel").touch()
    assert complaint(tmp_path / "nett.caffemodel") == 'no such file; did you mean "net.caffemodel"?'
    assert complaint(tmp_path / "net.caffemodel") == "is empty"
    assert complaint(tmp_path) == "is a folder, not a file"


def test_wrong_kinds_are_named() -> None:
    wanted = "not a binary file of weights (caffemodel)"
    assert complaint(STATE) == f"is a binary solver state (solverstate), {wanted}"
    assert complaint(INPUTS / "solver.prototxt") == f"is a text file (prototxt), {wanted}"
    assert complaint(INPUTS / "lenet_opts_iter_30.caffemodel.h5") == f"is an HDF5 file, {wanted}"
    assert complaint(WEIGHTS, pb.SolverState) == (
        "is a binary file of weights (caffemodel), not a binary solver state (solverstate)"
    )
    assert complaint(GOLDEN / "cli" / "cases.json") == "is not a binary file of weights (caffemodel)"
    assert complaint(WEIGHTS, pb.Datum) == "is a binary file of weights (caffemodel), not a Datum"


def test_damaged_files(tmp_path: Path) -> None:
    content = WEIGHTS.read_bytes()
    path = tmp_path / "net.caffemodel"
    path.write_bytes(content[: len(content) // 2])
    assert complaint(path) == "is a binary file of weights (caffemodel), but damaged or truncated"
    path.write_bytes(random.Random(3).randbytes(1000))
    assert complaint(path) == "is not a binary file of weights (caffemodel)"


def test_small_messages_of_no_clear_kind_are_read(tmp_path: Path) -> None:
    for message in (pb.NetParameter(name="n"), pb.SolverState(iter=3), pb.BlobProto(num=1), pb.Datum(label=3)):
        write_binary(tmp_path / "a", message)
        assert read_binary(tmp_path / "a", type(message)) == message


def test_fields_of_a_later_schema_are_kept(tmp_path: Path) -> None:
    """Caffe's forks add fields; what is known is still read."""
    path = tmp_path / "net.caffemodel"
    path.write_bytes(WEIGHTS.read_bytes() + b"\xf2\x3f\x03abc")
    assert len(read_binary(path, pb.NetParameter).layer) == len(read_binary(WEIGHTS, pb.NetParameter).layer)


def test_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binary, "LARGEST_MESSAGE", 100)
    assert "more than the 2 GB that protobuf can hold; use HDF5" in complaint(WEIGHTS)
    target = tmp_path / "big"
    with pytest.raises(WriteError, match=r"big: could not be written: \d+ bytes, more than the 2 GB") as caught:
        write_binary(target, pb.NetParameter(name="x" * 200))
    assert caught.value.path == str(target)
    assert list(tmp_path.iterdir()) == []


def test_incomplete_message_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(WriteError, match="missing required field"):
        write_binary(tmp_path / "a", pb.ClipParameter(min=1))
    assert list(tmp_path.iterdir()) == []
