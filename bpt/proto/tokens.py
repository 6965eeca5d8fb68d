"""Cuts text format into tokens that know their place.

The rules are those of protobuf's C++ tokenizer, which Caffe uses, where they matter for files that exist:
``#`` starts a comment, a string ends on its line, adjacent strings are joined later, a number must not run
into a name.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator
from typing import NamedTuple

from bpt.errors import PrototxtError, excerpt
from bpt.origin import Origin


class Kind(enum.Enum):
    """What a token is."""

    NAME = "name"
    NUMBER = "number"  # without its sign; may still be malformed
    STRING = "string"  # with its quotes
    SYMBOL = "symbol"  # one of { } < > [ ] : ; , - and, to be refused in words, =
    END = "end"  # after the last token; its text is empty


class Token(NamedTuple):
    """A piece of text and its place; ``line`` and ``column`` count from 1."""

    kind: Kind
    text: str
    line: int
    column: int

    def __str__(self) -> str:
        return "the end" if self.kind is Kind.END else excerpt(self.text)


_SKIPPED = re.compile(r"(?:[ \t\r\n\v\f]+|#[^\n]*)+")
# Repeats a class, not an alternative, wherever it can: re keeps a record of each time that an alternative is taken.
_TOKEN = re.compile(
    r"""
      (?P<NAME>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<NUMBER>\.?[0-9][0-9A-Za-z_.]*(?:(?<=[eE])[+-][0-9A-Za-z_.]*)*)
    | (?P<STRING>"[^"\\\n]*(?:\\[^\n][^"\\\n]*)*"|'[^'\\\n]*(?:\\[^\n][^'\\\n]*)*')
    | (?P<SYMBOL>[{}<>\[\]:;,=-])
    """,
    re.VERBOSE,
)
# Half characters. Decoding with "surrogateescape" makes those from DC80 on out of bytes that are not UTF-8.
_SURROGATE = re.compile("[\ud800-\udfff]")


def tokenize(text: str, path: str) -> Iterator[Token]:
    """Yields the tokens of ``text``, last of all one of kind END. ``path`` is what errors call the text.

    Raises PrototxtError at the first character that starts no token. Comments may hold anything, even bytes
    that are not UTF-8 (decoded by ``surrogateescape``): Caffe does not mind them, and old files have them.
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
            yield Token(Kind.END, "", line, column)
            return
        token = _TOKEN.match(text, position)
        if not token:
            raise PrototxtError(_complaint(text[position]), Origin(path, line, column))
        stray = _SURROGATE.search(token.group())
        if stray:
            raise PrototxtError(_complaint(stray.group()), Origin(path, line, column + stray.start()))
        assert token.lastgroup is not None
        yield Token(Kind[token.lastgroup], token.group(), line, column)
        position = token.end()


def _complaint(character: str) -> str:
    if "\udc80" <= character <= "\udcff":
        return f"byte 0x{ord(character) - 0xDC00:02x} is not UTF-8; save the file as UTF-8"
    if character in "\"'":
        return f"the text that starts with {character} does not end on its line"
    return f"unexpected character {character!r}"
