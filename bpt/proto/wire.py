"""Reads the outline of protobuf's binary format: which fields there are and where their contents lie.

Enough to tell what a file is without parsing all of it, and to get at packed numbers without a loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from google.protobuf.descriptor import FieldDescriptor

from bpt.proto.fields import is_repeated

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5

_STORED_FIXED = {FieldDescriptor.TYPE_FLOAT: FIXED32, FieldDescriptor.TYPE_DOUBLE: FIXED64}


class MalformedError(ValueError):
    """The bytes are not the binary format, or end inside a field."""


class WireField(NamedTuple):
    """One field: its number, how it is stored, and where its content lies: bytes ``start`` to ``end``."""

    number: int
    wire_type: int
    start: int
    end: int


def outline(data: bytes | memoryview) -> Iterator[WireField]:
    """Yields the fields at the top level of a serialised message. Contents are skipped, not read.

    Raises MalformedError where the data stop making sense, after it has yielded what came before.
    """
    position = 0
    while position < len(data):
        tag, start = read_varint(data, position)
        number, wire_type = tag >> 3, tag & 7
        if wire_type == VARINT:
            end = read_varint(data, start)[1]
        elif wire_type == LENGTH:
            length, start = read_varint(data, start)
            end = start + length
        elif wire_type in (FIXED32, FIXED64):
            end = start + (4 if wire_type == FIXED32 else 8)
        else:
            raise MalformedError(f"wire type {wire_type}")
        if number == 0 or end > len(data):
            raise MalformedError("a field that cannot be")
        yield WireField(number, wire_type, start, end)
        position = end


def read_varint(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """The variable-length integer at ``position``, and the position after it. Raises MalformedError."""
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            raise MalformedError("ends inside a number")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise MalformedError("a number that is too long")


def write_varint(value: int) -> bytes:
    """``value`` (not negative) as a variable-length integer."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def wire_types(field: FieldDescriptor) -> frozenset[int]:
    """How values of ``field`` may be stored; lists of numbers may be packed or not, whatever is declared."""
    if field.type in (FieldDescriptor.TYPE_MESSAGE, FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES):
        return frozenset({LENGTH})
    one = _STORED_FIXED.get(field.type, VARINT)  # the schema has no other types of fixed width
    return frozenset({one, LENGTH}) if is_repeated(field) else frozenset({one})
