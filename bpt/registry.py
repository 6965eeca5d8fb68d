"""A table from names to classes that refuses duplicates and explains unknown names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from bpt.errors import UserError, did_you_mean

T = TypeVar("T")


class Registry(Generic[T]):
    """Name → entry.

    Args:
        kind: the word for an entry in messages ("layer type").
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, T] = {}

    def register(self, name: str) -> Callable[[T], T]:
        """Return a decorator that enters what it decorates under ``name``."""

        def enter(entry: T) -> T:
            assert name not in self._entries, f"{self.kind} {name!r} is registered twice"
            self._entries[name] = entry
            return entry

        return enter

    def __getitem__(self, name: str) -> T:
        """The entry called ``name``; a UserError that names the nearest and all known ones otherwise."""
        if name not in self._entries:
            hint = did_you_mean(name, self._entries) or f" (known: {', '.join(self)})"
            raise UserError(f'unknown {self.kind} "{name}"{hint}')
        return self._entries[name]

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        """The known names, sorted."""
        return iter(sorted(self._entries))
