"""Questions about fields that protobuf answers in other words from version to version, or not at all."""

from __future__ import annotations

from typing import cast

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

FIRST_OWN_NUMBER = 1000
# Their few numbers above 1000 are Caffe's own.
_OLD_LAYERS = frozenset({"V0LayerParameter", "V1LayerParameter"})


def field_by_name(message: Message | type[Message], name: str) -> FieldDescriptor | None:
    """The field of ``message`` called ``name``; None if there is none."""
    return cast("FieldDescriptor | None", message.DESCRIPTOR.fields_by_name.get(name))


def fields_of(message: Message) -> list[FieldDescriptor]:
    """All fields that ``message`` can have, in the order of the schema."""
    return cast("list[FieldDescriptor]", list(message.DESCRIPTOR.fields))


def field_by_number(message: Message | type[Message], number: int) -> FieldDescriptor | None:
    """The field of ``message`` with the number ``number``; None if there is none."""
    return cast("FieldDescriptor | None", message.DESCRIPTOR.fields_by_number.get(number))


def is_repeated(field: FieldDescriptor) -> bool:
    """Whether the field holds a list."""
    try:  # protobuf 7 has no ``label`` any more, protobuf 4 no ``is_repeated`` yet
        return bool(field.is_repeated)
    except AttributeError:
        label = field.label  # type: ignore[attr-defined]
        return bool(label == FieldDescriptor.LABEL_REPEATED)


def is_message(field: FieldDescriptor) -> bool:
    """Whether the field holds a message (or a list of them), not a plain value."""
    return bool(field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE)


def is_own(field: FieldDescriptor) -> bool:
    """Whether bpt added the field to one of Caffe's messages, so that Caffe does not know it."""
    container = field.containing_type
    return field.number >= FIRST_OWN_NUMBER and container is not None and container.name not in _OLD_LAYERS
