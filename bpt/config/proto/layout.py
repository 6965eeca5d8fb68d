"""Prototxt for readers: a message that fits in a line is written in one."""

from __future__ import annotations

import re
from collections.abc import Iterator

from google.protobuf.message import Message

from bpt.config.proto.text import to_text

WIDTH = 115


def layout(message: Message) -> str:
    """Return the text of a net, a line or a few for each layer, or of another message, for readers."""
    return "\n".join(_pack(readable(to_text(message)).splitlines(), "")) + "\n"


def readable(text: str) -> str:
    r"""Return a text with letters in place of protobuf's escapes: ``"grün"`` for ``"gr\303\274n"``."""

    def letters(found: re.Match[str]) -> str:
        codes = re.findall(r"[0-7]{3}", found[1] or "")
        try:
            return bytes(int(code, 8) for code in codes).decode() or found[0]
        except UnicodeDecodeError:
            return found[0]

    return re.sub(r"\\\\|((?:\\[23][0-7]{2})+)", letters, text)


def _pack(lines: list[str], indent: str) -> Iterator[str]:
    """Join the fields in ``lines`` (one a line, as ``to_text`` writes them) into lines of at most WIDTH characters.

    Plain fields share lines, and so do messages of one name, except layers. A message that does not fit in a line
    is opened, its fields are packed in turn, and it is closed.
    """
    current, current_kind = "", ""
    for field in _fields(lines):
        flat = " ".join(line.strip() for line in field)
        kind = flat.split(" ")[0] if flat.endswith("}") else "plain"
        fits = len(indent + flat) <= WIDTH
        joins = fits and kind == current_kind != "layer" and len(f"{indent}{current} {flat}") <= WIDTH
        if current and not joins:
            yield indent + current
            current = ""
        if fits:
            current, current_kind = f"{current} {flat}".strip(), kind
        else:
            yield indent + field[0].strip()
            yield from _pack(field[1:-1], indent + "  ")
            yield indent + field[-1].strip()
    if current:
        yield indent + current


def _fields(lines: list[str]) -> Iterator[list[str]]:
    """Cut ``lines`` into fields: one line, or all lines of a message."""
    depth = 0
    field: list[str] = []
    for line in lines:
        field.append(line)
        depth += line.endswith("{") - line.endswith("}")
        if depth == 0:
            yield field
            field = []
