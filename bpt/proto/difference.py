"""In which fields two messages differ, for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from bpt.proto.fields import fields_of, is_message, is_repeated

_LONG = 40  # characters of a value that is still shown


def different_fields(was: Message, now: Message) -> Iterator[str]:
    """``max_iter (200, now 100)``: each field whose value differs; a field that is not set has its default.

    Args:
        was, now: of one type.
    """
    for field in fields_of(was):
        mine, other = getattr(was, field.name), getattr(now, field.name)
        if is_message(field) and not is_repeated(field):
            yield from (f"{field.name} {{ {inner} }}" for inner in different_fields(mine, other))
        elif mine != other:
            before, after = _shown(field, mine), _shown(field, other)
            short = max(len(before), len(after)) <= _LONG
            yield f"{field.name} ({before}, now {after})" if short else field.name


def _shown(field: FieldDescriptor, value: Any) -> str:
    if is_repeated(field):
        return "[" + ", ".join(_one(field, each) for each in value) + "]"
    return _one(field, value)


def _one(field: FieldDescriptor, value: Any) -> str:
    if field.enum_type is not None:
        return str(field.enum_type.values_by_number[value].name)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.7g}"
    return f'"{value}"' if isinstance(value, str) else str(value)
