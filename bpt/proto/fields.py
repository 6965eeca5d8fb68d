"""Questions about a field of the schema that protobuf answers differently from version to version, or not at all."""

from __future__ import annotations

from google.protobuf.descriptor import FieldDescriptor

FIRST_OWN_NUMBER = 1000
# Their few numbers above 1000 are Caffe's own.
_OLD_LAYERS = frozenset({"V0LayerParameter", "V1LayerParameter"})


def is_repeated(field: FieldDescriptor) -> bool:
    """Whether the field holds a list. (protobuf 7 has no ``label`` any more, protobuf 4 no ``is_repeated`` yet.)"""
    try:
        return bool(field.is_repeated)
    except AttributeError:
        return bool(field.label == FieldDescriptor.LABEL_REPEATED)


def is_message(field: FieldDescriptor) -> bool:
    """Whether the field holds a message (or a list of them), not a plain value."""
    return bool(field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE)


def is_own(field: FieldDescriptor) -> bool:
    """Whether bpt added the field to one of Caffe's messages, so that Caffe does not know it."""
    return field.number >= FIRST_OWN_NUMBER and field.containing_type.name not in _OLD_LAYERS
