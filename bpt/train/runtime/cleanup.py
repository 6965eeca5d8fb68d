"""Ending: what is to be closed when a run ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T", bound="Closeable")


class CleanupStack:
    """Closes what it was told of, the last first, and each once."""

    def __init__(self) -> None:
        self._left: list[Callable[[bool], object]] = []

    def add(self, close: Callable[[bool], object]) -> None:
        """Add what is called with whether something has failed; if nothing has, it may be a collective call."""
        self._left.append(close)

    def add_own(self, close: Callable[[], object]) -> None:
        """Add what concerns this rank only."""
        self._left.append(lambda failed: close())

    def close(self, failed: bool = False) -> None:
        """Close all; a collective call, unless something ``failed``.

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
    """What the end of a ``with`` block closes, after a failure in it too."""

    def __enter__(self: T) -> T:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self.close(failed=kind is not None)

    def close(self, failed: bool = False) -> None:
        """Give back what there is; a collective call, unless something ``failed``."""
        raise NotImplementedError
