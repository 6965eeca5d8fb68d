"""The outline of the binary format."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bpt.proto import bpt_pb2 as pb
from bpt.proto.fields import field_by_number
from bpt.proto.wire import MalformedError, WireField, outline, read_varint, wire_types, write_varint
from tests.proto.messages import messages


def test_outline() -> None:
    data = pb.BlobProto(num=300, data=[1, 2]).SerializeToString()
    assert list(outline(data)) == [WireField(1, 0, 1, 3), WireField(5, 2, 5, 13)]
    assert list(outline(b"")) == []


@pytest.mark.parametrize(
    "data",
    [b"\x08", b"\x08\x80", b"\x0a\x05abc", b"\x0b", b"\x0f", b"\x00\x01", b"\x0d\x00", b"\x08" + b"\xff" * 11],
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
