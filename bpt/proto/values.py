"""What one value of text format means: numbers, words and quoted text, by the type of their field.

A value that does not fit raises ValueError; its message completes the sentence '"pad" takes ...'.
"""

from __future__ import annotations

import re

from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor

from bpt.errors import did_you_mean

RANGES = {
    FieldDescriptor.TYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.TYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.TYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.TYPE_UINT64: (0, 2**64 - 1),
}
"""Least and greatest value of each integer type of the schema."""

_DECIMAL = re.compile(r"0|[1-9][0-9]*")
_HEX = re.compile(r"0[xX][0-9a-fA-F]+")
_OCTAL = re.compile(r"0[0-7]+")
_FLOAT = re.compile(r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fF]?")
_SPECIAL_FLOATS = {"inf": float("inf"), "infinity": float("inf"), "nan": float("nan")}
_BOOLS = {"true": True, "True": True, "t": True, "false": False, "False": False, "f": False}
_ESCAPE = re.compile(
    rb"\\(?:(?P<simple>[abfnrtv\\'\"?])"
    rb"|(?P<octal>[0-7]{1,3})"
    rb"|[xX](?P<hex>[0-9a-fA-F]{1,2})"
    rb"|(?:u(?P<short>[0-9a-fA-F]{4})|U(?P<long>[0-9a-fA-F]{8}))"
    rb"|(?P<unknown>.))",
    re.DOTALL,
)
_SIMPLE_ESCAPES = dict(zip(b"abfnrtv\\'\"?", b"\a\b\f\n\r\t\v\\'\"?", strict=True))


def parse_integer(text: str) -> int | None:
    """The number in decimal, hexadecimal (``0x1F``) or, as in C, octal (``017``); None if it is none of them."""
    for pattern, base in ((_DECIMAL, 10), (_HEX, 16), (_OCTAL, 8)):
        if pattern.fullmatch(text):
            return int(text, base)
    return None


def to_integer(text: str, lowest: int, highest: int) -> int:
    """The whole number that ``text`` (with its sign) stands for, between ``lowest`` and ``highest``."""
    magnitude = parse_integer(text.removeprefix("-"))
    value = -magnitude if magnitude is not None and text.startswith("-") else magnitude
    if value is None:
        raise ValueError("a whole number")
    if not lowest <= value <= highest:
        raise ValueError(f"a whole number from {lowest} to {highest}")
    return value


def to_float(text: str) -> float:
    """The number that ``text`` (with its sign) stands for: ``1``, ``1.``, ``.5``, ``1e-3``, ``1f``, ``inf``, ``nan``."""
    sign = -1.0 if text.startswith("-") else 1.0
    magnitude = text.removeprefix("-")
    special = _SPECIAL_FLOATS.get(magnitude.lower())
    if special is not None:
        return sign * special
    if _OCTAL.fullmatch(magnitude):
        # Old versions of protobuf read it as octal, new ones refuse it.
        raise ValueError("a number without leading zeros")
    if not _FLOAT.fullmatch(magnitude):
        raise ValueError("a number")
    return sign * float(magnitude.rstrip("fF"))


def to_bool(text: str) -> bool:
    """The truth value of ``true``, ``True``, ``t``, ``1`` and their opposites."""
    number = parse_integer(text)
    if text not in _BOOLS and number not in (0, 1):
        raise ValueError("true or false")
    return _BOOLS[text] if text in _BOOLS else bool(number)


def to_enum(text: str, enum: EnumDescriptor) -> int:
    """The number of the value of ``enum`` that ``text`` names or, by number, is."""
    by_name = enum.values_by_name.get(text)
    if by_name is not None:
        return int(by_name.number)
    if parse_integer(text.removeprefix("-")) in enum.values_by_number and not text.startswith("-"):
        return int(text, 0)
    known = [value.name for value in enum.values]
    raise ValueError(f"one of {', '.join(known)}{did_you_mean(text, known)}")


def unquote(text: str) -> bytes:
    """The bytes that a quoted text stands for, its quotes taken off and its escapes replaced."""
    return _ESCAPE.sub(_unescape, text[1:-1].encode())


def _unescape(match: re.Match[bytes]) -> bytes:
    if match["simple"]:
        return bytes([_SIMPLE_ESCAPES[match["simple"][0]]])
    if match["octal"] or match["hex"]:
        value = int(match["octal"], 8) if match["octal"] else int(match["hex"], 16)
        if value > 255:
            raise ValueError(f'text whose escapes are bytes, unlike "{match.group().decode()}"')
        return bytes([value])
    code = match["short"] or match["long"]
    if code and (character := _character(int(code, 16))):
        return character
    escape = match.group().decode(errors="replace")
    raise ValueError(f'text without the unknown escape "{escape}" (write a backslash as "\\\\")')


def _character(code: int) -> bytes | None:
    """The UTF-8 of a code point; None if there is no such character."""
    if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
        return None
    return chr(code).encode()
