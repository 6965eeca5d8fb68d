"""Prototxt for readers: what fits in a line stands in a line."""

from __future__ import annotations

from collections.abc import Iterator

from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.text import to_text

WIDTH = 115


def layout(net: pb.NetParameter) -> str:
    """The text of ``net``, a line or a few for each layer."""
    return "\n".join(_pack(to_text(net).splitlines(), "")) + "\n"


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
