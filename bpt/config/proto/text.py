"""Text format (prototxt) in and out: the one module to import for it.

Output has the layout of protobuf's C++ library, so that logs and files look like Caffe's.
"""

from __future__ import annotations

import codecs
import math
import os
from collections.abc import Callable, Iterator

import numpy as np
from google.protobuf import text_encoding
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from bpt.base.errors import PrototxtError
from bpt.base.user_files import UnreadableError, read_bytes
from bpt.config.proto.binary_files import BINARY_KINDS, describe, explain_format, kind_of
from bpt.config.proto.fields import is_message, is_own, is_own_value, is_repeated
from bpt.config.proto.parse import M, ParsedText, parse_text


def to_text(message: Message, *, for_caffe: bool = False) -> str:
    """Return ``message`` in text format: fields by number, one a line, two spaces a level.

    Floats have the fewest digits that read back to the same float32 (``0.1``, not ``0.100000001``); enums have their
    names. ``for_caffe`` omits the fields that only bpt has, which Caffe would refuse.
    """
    return "".join(_lines(message, "", for_caffe))


def _lines(message: Message, indent: str, for_caffe: bool) -> Iterator[str]:
    for field, value in message.ListFields():
        if for_caffe and (is_own(field) or is_own_value(field, value)):
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
    """Return the function that prints a value of ``field``."""
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


__all__ = ["ParsedText", "parse_text", "read_text", "to_text"]


def read_text(path: str | os.PathLike[str], message_class: type[M], *, passing: bool = False) -> ParsedText[M]:
    """Read the file at ``path`` as :func:`parse_text` reads text.

    The text must be UTF-8, with or without a byte order mark; comments may hold any bytes.

    Raises:
        PrototxtError: with line and column for a mistake in the text; without them for a file that is missing, cannot
            be read or is binary.
    """
    name = os.fspath(path)
    try:
        content = read_bytes(path)
    except UnreadableError as error:
        raise PrototxtError(f"{name}: {error}") from None
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise PrototxtError(f"{name}: is UTF-16; save the file as UTF-8")
    if found := explain_format(content, "a prototxt"):
        raise PrototxtError(f"{name}: {found}")
    kind = kind_of(content)
    if b"\0" in content or kind in BINARY_KINDS:
        raise PrototxtError(f"{name}: is {describe(kind)}, not a prototxt")
    return parse_text(content.decode("utf-8-sig", "surrogateescape"), message_class, name, passing=passing)
