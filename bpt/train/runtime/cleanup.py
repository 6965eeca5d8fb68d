"""CleanupStack: closes the resources of a run at its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T", bound="Closeable")


class CleanupStack:
    """Closes its entries once each, the last first."""

    def __init__(self) -> None:
        self._left: list[Callable[[bool], object]] = []

    def add(self, close: Callable[[bool], object]) -> None:
        """Add a callback that gets whether something has failed; if nothing has, it may be a collective call."""
        self._left.append(close)

    def add_own(self, close: Callable[[], object]) -> None:
        """Add a callback that concerns this rank only."""
        self._left.append(lambda failed: close())

    def close(self, failed: bool = False) -> None:
        """Close all entries; a collective call, unless something ``failed``.

        Raises:
            Exception: what closing raised first; the rest is then closed as after a failure.
        """
        while self._left:
            try:
                self._left.pop()(failed)
            except BaseException:
                self.close(failed=True)
                raise


class Closeable:
    """A context manager that is closed at the end of its ``with`` block, after a failure too."""

    def __enter__(self: T) -> T:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self.close(failed=kind is not None)

    def close(self, failed: bool = False) -> None:
        """Free the resources; a collective call, unless something ``failed``."""
        raise NotImplementedError
