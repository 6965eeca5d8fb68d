"""Text format out, laid out as protobuf's C++ library does it, so that logs and files look like Caffe's."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
from google.protobuf import text_encoding
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from bpt.proto.fields import is_message, is_own, is_repeated


def to_text(message: Message, *, for_caffe: bool = False) -> str:
    """``message`` in text format: fields in the order of their numbers, one a line, two spaces a level.

    Floats are printed with as few digits as read back to the same float32 (``0.1``, not ``0.100000001``),
    enums by name. ``for_caffe`` leaves out the fields that only bpt knows, which Caffe would refuse.
    """
    return "".join(_lines(message, "", for_caffe))


def _lines(message: Message, indent: str, for_caffe: bool) -> Iterator[str]:
    for field, value in message.ListFields():
        if for_caffe and is_own(field):
            continue
        elements = value if is_repeated(field) else (value,)
        if is_message(field):
            for element in elements:
                yield f"{indent}{field.name} {{\n"
                yield from _lines(element, indent + "  ", for_caffe)
                yield f"{indent}}}\n"
        else:
            show = _printer(field)
            for element in elements:
                yield f"{indent}{field.name}: {show(element)}\n"


def _printer(field: FieldDescriptor) -> Callable[..., str]:
    """The function that prints a value of ``field``."""
    if field.type == FieldDescriptor.TYPE_FLOAT:
        return _float
    if field.type == FieldDescriptor.TYPE_DOUBLE:
        return _double
    if field.type == FieldDescriptor.TYPE_BOOL:
        return lambda value: "true" if value else "false"
    if field.enum_type is not None:
        names = field.enum_type.values_by_number
        return lambda value: names[value].name if value in names else str(value)
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return _quoted
    return str


def _float(value: float) -> str:
    single = np.float32(value)
    for digits in range(6, 9):
        text = f"{value:.{digits}g}"
        if np.float32(float(text)) == single:
            return text
    return f"{value:.9g}"  # always enough; also nan, which equals nothing


def _double(value: float) -> str:
    text = f"{value:.15g}"
    return text if math.isnan(value) or float(text) == value else f"{value:.17g}"


def _quoted(value: str | bytes) -> str:
    content = value.encode() if isinstance(value, str) else value
    return f'"{text_encoding.CEscape(content, False)}"'
