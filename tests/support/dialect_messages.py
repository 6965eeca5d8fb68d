"""Writes messages of Caffe's forks field by field, without the schema."""

from __future__ import annotations

import struct

from bpt.config.proto.binary_files import LENGTH, VARINT, write_varint

Value = int | float | str | bytes


def message(*fields: tuple[int, Value]) -> bytes:
    """A message of such fields: a number, a float, a text, or a message."""
    parts = []
    for number, value in fields:
        if isinstance(value, int):
            parts.append(write_varint(number << 3 | VARINT) + write_varint(value))
        elif isinstance(value, float):
            parts.append(write_varint(number << 3 | 5) + struct.pack("<f", value))
        else:
            content = value.encode() if isinstance(value, str) else value
            parts.append(write_varint(number << 3 | LENGTH) + write_varint(len(content)) + content)
    return b"".join(parts)


def layer(kind: str, *fields: tuple[int, Value], name: str = "L") -> tuple[int, bytes]:
    return 100, message((1, name), (2, kind), *fields)
