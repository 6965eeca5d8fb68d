"""A table from names to classes that refuses duplicates and explains unknown names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from bpt.errors import UnknownNameError

T = TypeVar("T")
_MOST_LISTED = 20  # names that a message lists


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
        """The entry called ``name``.

        Raises:
            UnknownNameError: there is none; with the nearest name or, if they are few, all of them.
        """
        if name not in self._entries:
            listed = f" (known: {', '.join(self)})" if len(self._entries) <= _MOST_LISTED else ""
            raise UnknownNameError(f'unknown {self.kind} "{name}"', name, self._entries, listed)
        return self._entries[name]

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        """The known names, sorted."""
        return iter(sorted(self._entries))
