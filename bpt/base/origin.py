"""Origin: the place of a field in a text file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

FieldPath = tuple[str | int, ...]
"""The path of a field from the top of a message: ``("layer", 3, "type")`` is ``net.layer[3].type``."""
FLAG, ARGUMENT = "--set '", "overrides '"
"""The begin of an Origin's path for text that the user typed after this flag or as this argument. A quote ends it."""


@dataclass(frozen=True)
class Origin:
    """A place in a text file: its path, line and column.

    Lines and columns count from 1, as in an editor. ``str()`` gives ``path:line:column``.
    """

    path: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}"

    def blame(self, message: str) -> str:
        """Return ``message`` with this place before it; for text of the command line, with the marked text after it."""
        prefix = next(filter(self.path.startswith, (FLAG, ARGUMENT)), None)
        if prefix is None:
            return f"{self}: {message}"
        typed = self.path.removeprefix(prefix)
        if "\n" in typed or self.column > len(typed):  # the path holds only the beginning of a long text
            return f"{message}; at {self}"
        return f"{message}\n  {self.path}\n  {' ' * (len(prefix) + self.column - 1)}^"


def locate(origins: Mapping[FieldPath, Origin], where: FieldPath, path: str) -> Origin:
    """Return the origin of the field at ``where`` or, if it is not set, of the nearest message around it.

    If no message around it is set, the origin is the start of the file at ``path``.
    """
    while where and where not in origins:
        where = where[:-1]
    return origins.get(where) or Origin(path, 1, 1)
