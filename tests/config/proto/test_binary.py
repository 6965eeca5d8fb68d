"""Binary files, their outline and their kinds."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, cast

import pytest
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from bpt.base.errors import FileError, WriteError
from bpt.config.proto import binary_files as binary
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.binary_files import (
    MalformedError,
    WireField,
    kind_of,
    outline,
    read_binary,
    read_varint,
    sniff,
    wire_types,
    write_binary,
    write_varint,
)
from bpt.config.proto.fields import field_by_number
from tests.config.proto.messages import messages
from tests.support.golden_files import INPUTS, UPGRADE
from tests.support.paths import GOLDEN


def test_outline() -> None:
    data = pb.BlobProto(num=300, data=[1, 2]).SerializeToString()
    assert list(outline(data)) == [WireField(1, 0, 1, 3), WireField(5, 2, 5, 13)]
    assert list(outline(b"")) == []


@pytest.mark.parametrize(
    "data", [b"\x08", b"\x08\x80", b"\x0a\x05abc", b"\x0b", b"\x0f", b"\x00\x01", b"\x0d\x00", b"\x08" + b"\xff" * 11]
)
def test_malformed(data: bytes) -> None:
    with pytest.raises(MalformedError):
        list(outline(data))


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.integers(0, 2**64 - 1))
def test_varints_round_trip(value: int) -> None:
    data = write_varint(value)
    assert read_varint(b"x" + data + b"y", 1) == (value, 1 + len(data))


@settings(max_examples=100, deadline=None, derandomize=True)
@given(messages(pb.LayerParameter) | messages(pb.BlobProto) | messages(pb.SolverState))
def test_outline_agrees_with_the_schema(message: pb.LayerParameter) -> None:
    seen = set()
    for part in outline(message.SerializeToString()):
        field = field_by_number(message, part.number)
        assert field is not None
        assert part.wire_type in wire_types(field)
        seen.add(field.name)
    assert seen == {field.name for field, _ in message.ListFields()}


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
    assert kind_of(content) == kind_of(cast(Any, memoryview(content)))


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
    assert complaint(tmp_path / "nett.caffemodel") == f'no such file; did you mean "{tmp_path}/net.caffemodel"?'
    assert complaint(tmp_path / "net.caffemodel") == "is empty"
    assert complaint(tmp_path) == "is a folder, not a file"


def test_wrong_kinds_are_named() -> None:
    reads = "bpt reads .caffemodel and HDF5 files of weights; bpt convert makes one of other formats"
    wanted = f"not a binary file of weights (caffemodel); {reads}"
    assert complaint(STATE) == f"is a binary solver state (solverstate), {wanted}"
    assert complaint(INPUTS / "solver.prototxt") == f"is a text file (prototxt), {wanted}"
    assert complaint(INPUTS / "lenet_opts_iter_30.caffemodel.h5") == f"is an HDF5 file, {wanted}"
    assert complaint(WEIGHTS, pb.SolverState) == (
        "is a binary file of weights (caffemodel), not a binary solver state (solverstate)"
    )
    assert complaint(GOLDEN / "cli" / "cases.json") == f"is a JSON file, {wanted}"
    assert complaint(WEIGHTS, pb.Datum) == "is a binary file of weights (caffemodel), not a Datum"


def test_damaged_files(tmp_path: Path) -> None:
    content = WEIGHTS.read_bytes()
    path = tmp_path / "net.caffemodel"
    path.write_bytes(content[: len(content) // 2])
    assert complaint(path) == "is a binary file of weights (caffemodel), but damaged or truncated"
    path.write_bytes(random.Random(3).randbytes(1000))
    assert complaint(path).startswith("is not a binary file of weights (caffemodel); bpt reads .caffemodel and HDF5")


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


@pytest.mark.parametrize(("kind", "start"), [
    (pb.NetParameter, pb.NetParameter(layer=[pb.LayerParameter(name="a")]).SerializeToString()),
    (pb.SolverState, pb.SolverState(iter=1, learned_net="w").SerializeToString()),
    (pb.BlobProto, pb.BlobProto(data=[1]).SerializeToString()),
])  # fmt: skip
def test_groups_in_groups_are_a_plain_error(kind: type[Message], start: bytes, tmp_path: Path) -> None:
    """Of fields that the schema does not know, groups are the only ones that protobuf looks into."""
    path = tmp_path / "deep"
    for field in (write_varint(999 << 3 | 3) * 100_000 + write_varint(999 << 3 | 4) * 100_000,
                  write_varint(999 << 3 | 3) * 100_000):  # fmt: skip
        path.write_bytes(start + field)
        with pytest.raises(FileError, match="damaged or truncated"):
            read_binary(path, kind)
