"""Samples of a list that cannot be read: all are reported at once, or other samples replace them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Generic, Protocol, TypeVar

from bpt.base.errors import DataError
from bpt.data.finite import ANY_RANK
from bpt.data.record_survey import survey

log = logging.getLogger("bpt")

_SECONDS = 20.0  # that a run which ends anyway takes to find what else is damaged
_MOST = 50  # that an error names

S = TypeVar("S")
S_co = TypeVar("S_co", covariant=True)


class NumberedSource(Protocol[S_co]):
    """An entry of a list; any thread may call ``read``, which raises a DataError."""

    path: str

    def __len__(self) -> int: ...

    def read(self, index: int) -> S_co: ...

    def glance(self) -> Iterator[bytes]: ...

    def close(self) -> None: ...


class ReportingSource(Generic[S]):
    """A list of samples, which names all that cannot be read when it meets the first one.

    Attributes:
        path: of the list, for messages.
        reports: whether samples that are skipped are reported.
    """

    def __init__(self, source: NumberedSource[S]) -> None:
        self._source = source
        self.path = source.path
        self.reports = True
        self._lock = threading.Lock()
        self._others: list[tuple[int, str]] | None = None
        self._looked = 0

    def __len__(self) -> int:
        return len(self._source)

    def read(self, index: int) -> S:
        """Return sample ``index``.

        Raises:
            DataError: it cannot be used; the message names the others that cannot be used, too.
        """
        try:
            return self._source.read(index)
        except DataError as error:
            raise DataError(f"{error}{self._and_others(index)}") from None

    def begin(self, index: int) -> Callable[[], S]:
        return partial(self.read, index)

    def glance(self) -> Iterator[bytes]:
        return self._source.glance()

    def close(self) -> None:
        self._source.close()

    def _and_others(self, index: int) -> str:
        """Return the end of a message that sample ``index`` cannot be read: which others cannot."""
        count = len(self)
        with self._lock:  # other threads meet others of them meanwhile
            if self._others is None:
                found = survey(count, self._source.read, seconds=_SECONDS)
                self._others = [(each, str(error)) for each, error in found.errors]
                self._looked = found.looked
        others = [text for each, text in self._others if each != index]
        unseen = count - self._looked
        rest = f"\n{unseen} of {count} were not looked at: bpt doctor --data finds all" if unseen else ""
        if not others:
            return rest
        more = [f"and {len(others) - _MOST} more: bpt doctor --data names all"] if len(others) > _MOST else []
        named = "\n  ".join([*others[:_MOST], *more])
        return f"\n{len(others)} more of the {count} that are listed cannot be used:\n  {named}{rest}"


class SkippingSource(ReportingSource[S]):
    """A list of samples in which the next one that can be read takes the place of one that cannot.

    Which one that is depends on the list and its files only, so all ranks and all divisions of a batch agree. Each
    sample that is skipped is reported once, and their number when the source is closed.

    Attributes:
        skipped: the numbers of the samples that cannot be used, as far as they have been met.
    """

    def __init__(self, source: NumberedSource[S]) -> None:
        super().__init__(source)
        self.skipped: set[int] = set()

    def read(self, index: int) -> S:
        """Return sample ``index``, or the next one that can be used; behind the last one is the first.

        Raises:
            DataError: none can be used.
        """
        count = len(self)
        last = ""
        for step in range(count):
            place = (index + step) % count
            if place in self.skipped:
                continue
            try:
                return self._source.read(place)
            except DataError as error:
                last = str(error)
                self._skip(place, last)
        why = f"; for the last one: {last}" if last else ""
        raise DataError(f"{self.path}: none of the {count} samples that it lists can be used{why}")

    def close(self) -> None:
        if self.skipped and self.reports:
            skipped = len(self.skipped)
            log.log(ANY_RANK, "%s: %d of %d samples were skipped (on_error: SKIP)", self.path, skipped, len(self))
        super().close()

    def _skip(self, place: int, why: str) -> None:
        with self._lock:
            if place in self.skipped:
                return
            self.skipped.add(place)
        if self.reports:
            log.log(ANY_RANK, "skipped, the next one that can be used takes its place: %s", why)


def handle_damage(source: NumberedSource[S], skips: bool) -> ReportingSource[S]:
    """Return ``source`` with what is done about samples that cannot be read.

    Args:
        skips: others take their places; else the first one is an error that names all.
    """
    return SkippingSource(source) if skips else ReportingSource(source)
