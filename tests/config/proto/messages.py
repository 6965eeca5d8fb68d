"""Random messages of any type of the schema, for hypothesis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from hypothesis import strategies as st

from bpt.config.proto.fields import fields_of, is_message, is_repeated
from bpt.config.proto.tokens import RANGES

M = TypeVar("M", bound=Message)


@st.composite
def messages(draw: st.DrawFn, message_class: type[M], most_fields: int = 4) -> M:
    """A message with some of its fields set, and some of theirs; the required ones always."""
    message = message_class()
    fill(draw, message, most_fields)
    return message


def fill(draw: Callable[[st.SearchStrategy[Any]], Any], message: Message, most_fields: int) -> None:
    fields = fields_of(message)
    chosen = draw(st.lists(st.sampled_from(fields), max_size=most_fields, unique_by=lambda field: field.number))
    made: Any = type(message)()
    unset = made.FindInitializationErrors()
    required = [field for field in fields if field.name in unset and field not in chosen]
    for field in chosen + required:
        if not is_message(field):
            value = draw(values(field))
            if is_repeated(field):
                getattr(message, field.name).extend([value, draw(values(field))])
            else:
                setattr(message, field.name, value)
        elif is_repeated(field):
            fill(draw, getattr(message, field.name).add(), most_fields // 2)
        else:
            getattr(message, field.name).SetInParent()
            fill(draw, getattr(message, field.name), most_fields // 2)


def values(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    """Values that a plain field can hold."""
    if field.type in RANGES:
        return st.integers(*RANGES[field.type])
    if field.enum_type is not None:
        return st.sampled_from([value.number for value in field.enum_type.values])
    return {
        FieldDescriptor.TYPE_FLOAT: st.floats(width=32, allow_nan=False),
        FieldDescriptor.TYPE_DOUBLE: st.floats(allow_nan=False),
        FieldDescriptor.TYPE_BOOL: st.booleans(),
        FieldDescriptor.TYPE_STRING: st.text(st.characters(exclude_categories=["Cs"])),
        FieldDescriptor.TYPE_BYTES: st.binary(),
    }[field.type]
