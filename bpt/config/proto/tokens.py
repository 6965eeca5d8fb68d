"""The tokens of text format with their places, and the meaning of values by the type of their field."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator
from typing import NamedTuple

from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor

from bpt.base.errors import PrototxtError, did_you_mean, excerpt
from bpt.base.origin import Origin


class TokenKind(enum.Enum):
    """The kind of a token."""

    NAME = "name"
    NUMBER = "number"  # without its sign; may still be malformed
    STRING = "string"  # with its quotes
    SYMBOL = "symbol"  # one of { } < > [ ] : ; , - and, to be refused in words, =
    END = "end"  # after the last token; its text is empty


class Token(NamedTuple):
    """A piece of text and its place; ``line`` and ``column`` count from 1."""

    kind: TokenKind
    text: str
    line: int
    column: int

    def __str__(self) -> str:
        return "the end" if self.kind is TokenKind.END else excerpt(self.text)


_SKIPPED = re.compile(r"(?:[ \t\r\n\v\f]+|#[^\n]*)+")
# It repeats classes, not alternatives, wherever possible, since re records each match of an alternative.
_TOKEN = re.compile(
    r"""
      (?P<NAME>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<NUMBER>\.?[0-9][0-9A-Za-z_.]*(?:(?<=[eE])[+-][0-9A-Za-z_.]*)*)
    | (?P<STRING>"[^"\\\n]*(?:\\[^\n][^"\\\n]*)*"|'[^'\\\n]*(?:\\[^\n][^'\\\n]*)*')
    | (?P<SYMBOL>[{}<>\[\]:;,=-])
    """,
    re.VERBOSE,
)
# Surrogates. Decoding with "surrogateescape" makes those from DC80 on from bytes that are not UTF-8.
_SURROGATE = re.compile("[\ud800-\udfff]")


def tokenize(text: str, path: str) -> Iterator[Token]:
    """Yield the tokens of ``text``, the last of kind END; errors call the text ``path``.

    Comments may hold anything, even bytes that are not UTF-8 (decoded by ``surrogateescape``). Caffe accepts them, and
    old files have them.

    Raises:
        PrototxtError: at the first character that starts no token.
    """
    position, line, line_start = 0, 1, 0
    while True:
        skipped = _SKIPPED.match(text, position)
        if skipped:
            newlines = text.count("\n", position, skipped.end())
            if newlines:
                line += newlines
                line_start = text.rindex("\n", position, skipped.end()) + 1
            position = skipped.end()
        column = position - line_start + 1
        if position == len(text):
            yield Token(TokenKind.END, "", line, column)
            return
        token = _TOKEN.match(text, position)
        if not token:
            raise PrototxtError(_complaint(text[position]), Origin(path, line, column))
        stray = _SURROGATE.search(token.group())
        if stray:
            raise PrototxtError(_complaint(stray.group()), Origin(path, line, column + stray.start()))
        assert token.lastgroup is not None
        yield Token(TokenKind[token.lastgroup], token.group(), line, column)
        position = token.end()


def _complaint(character: str) -> str:
    if "\udc80" <= character <= "\udcff":
        return f"byte 0x{ord(character) - 0xDC00:02x} is not UTF-8; save the file as UTF-8"
    if character in "\"'":
        return f"the text that starts with {character} does not end on its line"
    return f"unexpected character {character!r}"


class BadValueError(ValueError):
    """An error: a value does not fit its field.

    ``takes`` names fitting values: it completes the sentence '"pad" takes ...'. ``hint`` ends the message.
    """

    def __init__(self, takes: str, hint: str = "") -> None:
        super().__init__(takes)
        self.takes = takes
        self.hint = hint


RANGES = {
    FieldDescriptor.TYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.TYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.TYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.TYPE_UINT64: (0, 2**64 - 1),
}
"""The least and the greatest value of each integer type of the schema."""

_LONGEST_INTEGER = 100  # characters; Python refuses to convert very long ones
_MOST_LISTED = 12  # the most values of an enum that a message lists
_DECIMAL = re.compile(r"0|[1-9][0-9]*")
_HEX = re.compile(r"0[xX][0-9a-fA-F]+")
_OCTAL = re.compile(r"0[0-7]+")
_FLOAT = re.compile(r"(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fF]?")
_SPECIAL_FLOATS = {"inf": float("inf"), "infinity": float("inf"), "nan": float("nan")}
_BOOLS = {"true": True, "True": True, "t": True, "false": False, "False": False, "f": False}
_ESCAPE = re.compile(
    rb"\\(?:(?P<simple>[abfnrtv\\'\"?])"
    rb"|(?P<octal>[0-7]{1,3})"
    rb"|[xX](?P<hex>[0-9a-fA-F]{1,2})"
    rb"|(?P<code>u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})"
    rb"|.)",
    re.DOTALL,
)
_SIMPLE_ESCAPES = {
    bytes([letter]): bytes([meaning]) for letter, meaning in zip(b"abfnrtv\\'\"?", b"\a\b\f\n\r\t\v\\'\"?", strict=True)
}


def parse_integer(text: str) -> int | None:
    """Return the number in decimal, hexadecimal (``0x1F``) or, as in C, octal (``017``); None if it is neither."""
    if len(text) > _LONGEST_INTEGER:
        return None
    for pattern, base in ((_DECIMAL, 10), (_HEX, 16), (_OCTAL, 8)):
        if pattern.fullmatch(text):
            return int(text, base)
    return None


def to_integer(text: str, lowest: int, highest: int) -> int:
    """Return the whole number that ``text`` (with its sign) means, between ``lowest`` and ``highest``."""
    magnitude = parse_integer(text.removeprefix("-"))
    value = -magnitude if magnitude is not None and text.startswith("-") else magnitude
    if value is None:
        raise BadValueError("a whole number")
    if not lowest <= value <= highest:
        raise BadValueError(f"a whole number from {lowest} to {highest}")
    return value


def to_float(text: str) -> float:
    """Return the number that ``text`` (with its sign) is: ``1``, ``1.``, ``.5``, ``1e-3``, ``1f``, ``inf``, ``nan``."""
    sign = -1.0 if text.startswith("-") else 1.0
    magnitude = text.removeprefix("-")
    special = _SPECIAL_FLOATS.get(magnitude.lower())
    if special is not None:
        return sign * special
    if re.match("0[0-9]", magnitude):
        # Old versions of protobuf read it as octal, new ones refuse it.
        raise BadValueError("a number without leading zeros")
    if not _FLOAT.fullmatch(magnitude):
        raise BadValueError("a number")
    return sign * float(magnitude.rstrip("fF"))


def to_bool(text: str) -> bool:
    """Return the truth value of ``true``, ``True``, ``t``, ``1`` and their opposites."""
    if text in _BOOLS:
        return _BOOLS[text]
    number = parse_integer(text)
    if number not in (0, 1):
        raise BadValueError("true or false")
    return number == 1


def to_enum(text: str, enum: EnumDescriptor) -> int:
    """Return the number of the value of ``enum`` that ``text`` names, or gives as a number."""
    number = parse_integer(text)
    if text in enum.values_by_name:
        number = enum.values_by_name[text].number
    # protobuf reads 2^32 as 0.
    if number is None or number >= 2**31 or number not in enum.values_by_number:
        known = [value.name for value in enum.values]
        takes = f"one of {', '.join(known)}"
        if len(known) > _MOST_LISTED:
            takes = f"a value of {enum.full_name.removeprefix('bpt.')}"
        bare = text.strip("\"'")
        hint = did_you_mean(bare, known)
        if bare != text and hint:
            hint = hint.replace('did you mean "', "write ").replace('"?', " without quotes")
        raise BadValueError(takes, hint=hint)
    return number


def unquote(text: str) -> bytes:
    """Return the bytes of a quoted text, without its quotes and with its escapes replaced."""
    if text[:1] not in ('"', "'"):
        raise BadValueError("text in quotes")
    return _ESCAPE.sub(_unescape, text[1:-1].encode())


def _unescape(match: re.Match[bytes]) -> bytes:
    if match["simple"]:
        return _SIMPLE_ESCAPES[match["simple"]]
    if match["octal"] and int(match["octal"], 8) < 256:
        return bytes([int(match["octal"], 8)])
    if match["hex"]:
        return bytes([int(match["hex"], 16)])
    if match["code"] and (character := _utf8(int(match["code"][1:], 16))):
        return character
    escape = match.group().decode(errors="replace")
    raise BadValueError(f"text without the unknown escape {escape}", hint=r"; write a backslash as \\")


def _utf8(code: int) -> bytes | None:
    """Return the UTF-8 of a code point; None if there is no such character."""
    if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
        return None
    return chr(code).encode()
