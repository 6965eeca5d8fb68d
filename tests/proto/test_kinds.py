"""Telling files by their content."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bpt.proto import bpt_pb2 as pb
from bpt.proto.kinds import kind_of, sniff
from tests.proto.golden import GOLDEN, INPUTS, UPGRADE


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        *[(path, "caffemodel") for path in sorted(GOLDEN.glob("**/*.caffemodel"))],
        *[(path, "solverstate") for path in sorted(GOLDEN.glob("**/*.solverstate"))],
        *[(path, "mean") for path in sorted(GOLDEN.glob("**/*.binaryproto"))],
        *[(path, "hdf5") for path in sorted(GOLDEN.glob("**/*.h5"))],
        *[(path, "prototxt") for path in sorted(GOLDEN.glob("**/*.prototxt"))],
        (GOLDEN / "cli" / "cases.json", "unknown"),
        (GOLDEN / "lmdb" / "lmdb_contents.npz", "unknown"),
    ],
    ids=lambda value: value.name if isinstance(value, Path) else value,
)
def test_recorded_files(path: Path, kind: str) -> None:
    assert sniff(path) == kind


@pytest.mark.parametrize("kept", [0.1, 0.5, 0.99])
@pytest.mark.parametrize("name", ["lenet_iter_30.caffemodel", "lenet_iter_30.solverstate"])
def test_truncated_files_are_recognised(name: str, kept: float) -> None:
    content = (INPUTS / name).read_bytes()
    assert kind_of(content[: int(len(content) * kept)]) == name.rpartition(".")[2]


def test_v1_weights() -> None:
    assert sniff(UPGRADE / "v1_weights.caffemodel") == "caffemodel"


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        (pb.NetParameter(layer=[{"name": "a"}]), "caffemodel"),
        (pb.NetParameter(layers=[{"name": "a"}]), "caffemodel"),
        (pb.SolverState(iter=3, learned_net="a"), "solverstate"),
        (pb.SolverState(iter=3, history=[pb.BlobProto(data=[1])]), "solverstate"),
        (pb.BlobProto(data=[1], shape={"dim": [1]}), "mean"),
        (pb.BlobProto(num=1, channels=1, height=1, width=1, data=[1]), "mean"),
        (pb.BlobProto(double_data=[1], shape={"dim": [1]}), "mean"),
        (pb.SolverParameter(net="a"), "unknown"),
    ],
)
def test_small_messages(message: pb.NetParameter, kind: str) -> None:
    assert kind_of(message.SerializeToString()) == kind


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b'name: "a"', "prototxt"),
        (b'\xef\xbb\xbf# comment\r\n\n  layer {\n  name: "a" }', "prototxt"),
        (b"layer < >", "prototxt"),
        (b"", "unknown"),
        (b"hello world", "unknown"),
        (b" " * 50_000 + b"{", "unknown"),
        (b"# License\n" * 1000 + b"name: 3", "prototxt"),
        (b'{"a": 1}', "unknown"),
        (b"\x89PNG\r\n\x1a\n", "unknown"),
        (b"name: \x00", "unknown"),
    ],
)
def test_other_contents(content: bytes, kind: str) -> None:
    assert kind_of(content) == kind


def test_empty_file(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    assert sniff(tmp_path / "a") == "unknown"


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        sniff(tmp_path / "a")


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.binary())
def test_any_bytes_have_a_kind(content: bytes) -> None:
    assert kind_of(content) == kind_of(memoryview(content))
