"""CleanupStack: closes the resources of a run at its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T", bound="Closeable")


class CleanupStack:
    """Closes each of its entries once, the last one first."""

    def __init__(self) -> None:
        self._left: list[Callable[[bool], object]] = []

    def add(self, close: Callable[[bool], object]) -> None:
        """Add a callback whose argument says if something has failed; if not, it may make collective calls."""
        self._left.append(close)

    def add_own(self, close: Callable[[], object]) -> None:
        """Add a callback that concerns this rank only."""
        self._left.append(lambda failed: close())

    def close(self, failed: bool = False) -> None:
        """Close all entries; a collective call, unless something ``failed``.

        Raises:
            Exception: the first error of a callback; the rest is then closed as after a failure.
        """
        while self._left:
            try:
                self._left.pop()(failed)
            except BaseException:
                self.close(failed=True)
                raise


class Closeable:
    """A context manager whose ``with`` block ends with ``close``, even after a failure."""

    def __enter__(self: T) -> T:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self.close(failed=kind is not None)

    def close(self, failed: bool = False) -> None:
        """Free the resources; a collective call, unless something ``failed``."""
        raise NotImplementedError
