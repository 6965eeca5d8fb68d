"""A table from names to classes that refuses duplicates, explains unknown names, and imports modules on demand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Generic, TypeVar

from bpt.base.errors import UnknownNameError

T = TypeVar("T")
_MOST_LISTED = 20  # names that a message lists


class Registry(Generic[T]):
    """A table of entries by name.

    A module registers its entries when it is imported. The registry imports the modules in ``modules`` when one of
    their entries is first looked up; it knows the names before.

    Args:
        kind: the word for an entry in messages ("layer type").
        modules: the names that each module registers.
    """

    def __init__(self, kind: str, modules: Mapping[str, Sequence[str]] | None = None) -> None:
        self.kind = kind
        self._entries: dict[str, T] = {}
        self._modules = {name: module for module, names in (modules or {}).items() for name in names}

    def register(self, name: str) -> Callable[[T], T]:
        """Return a decorator that registers an object under ``name``."""

        def enter(entry: T) -> T:
            elsewhere = self._modules.get(name, entry.__module__) != entry.__module__
            assert name not in self._entries and not elsewhere, f"{self.kind} {name!r} is registered twice"
            self._entries[name] = entry
            return entry

        return enter

    def __getitem__(self, name: str) -> T:
        """Return the entry called ``name``.

        Raises:
            UnknownNameError: there is none. The error names the nearest name or, if there are few, all names.
        """
        if name not in self:
            known = list(self)
            listed = f" (known: {', '.join(known)})" if len(known) <= _MOST_LISTED else ""
            raise UnknownNameError(f'unknown {self.kind} "{name}"', name, known, listed)
        if name not in self._entries:
            import_module(self._modules[name])
        return self._entries[name]

    def module_of(self, name: str) -> str:
        """Return the module that registers ``name``, by the table of modules."""
        return self._modules[name]

    def __contains__(self, name: object) -> bool:
        return name in self._entries or name in self._modules

    def __iter__(self) -> Iterator[str]:
        """Return the known names, sorted."""
        return iter(sorted({*self._entries, *self._modules}))
