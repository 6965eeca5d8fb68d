"""Where in a text file something was written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

FieldPath = tuple[str | int, ...]
"""The way to a field from the top of a message: ``("layer", 3, "type")`` is ``net.layer[3].type``."""


@dataclass(frozen=True)
class Origin:
    """A place in a text file. Lines and columns count from 1, as in an editor; ``str()`` gives
    ``path:line:column``."""

    path: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}"


def locate(origins: Mapping[FieldPath, Origin], where: FieldPath, path: str) -> Origin:
    """The origin of the field at ``where`` or, if it was not written, of the nearest message around it.

    If nothing around it was written either, the start of the file at ``path``.
    """
    while where and where not in origins:
        where = where[:-1]
    return origins.get(where) or Origin(path, 1, 1)
