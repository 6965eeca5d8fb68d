"""Handles samples of a list that cannot be read: it reports all of them at once, or other samples replace them."""

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

_SECONDS = 20.0  # longest search for further damaged samples, when a run ends because of the first one
_MOST = 50  # samples that an error names

S = TypeVar("S")
S_co = TypeVar("S_co", covariant=True)


class NumberedSource(Protocol[S_co]):
    """A list of samples, whose ``read`` any thread may call; it raises a DataError for a damaged sample."""

    path: str

    def __len__(self) -> int: ...

    def read(self, index: int) -> S_co: ...

    def glance(self) -> Iterator[bytes]: ...

    def close(self) -> None: ...


class ReportingSource(Generic[S]):
    """A list of samples that, at the first damaged one, names all that cannot be read.

    Attributes:
        path: the path of the list, for messages.
        reports: whether skipped samples are reported.
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
            DataError: the sample cannot be used; the message also names the others that cannot be used.
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
        """Return the end of the message about sample ``index``: the other samples that cannot be read."""
        count = len(self)
        with self._lock:  # other threads meet others of them meanwhile
            if self._others is None:
                found = survey(count, self._source.read, seconds=_SECONDS)
                self._others = [(each, str(error)) for each, error in found.errors]
                self._looked = found.looked
        others = [text for each, text in self._others if each != index]
        unseen = count - self._looked
        rest = f"\n{unseen} of {count} were not checked: bpt doctor --data finds all" if unseen else ""
        if not others:
            return rest
        more = [f"and {len(others) - _MOST} more: bpt doctor --data names all"] if len(others) > _MOST else []
        named = "\n  ".join([*others[:_MOST], *more])
        return f"\n{len(others)} more of the {count} listed ones cannot be used:\n  {named}{rest}"


class SkippingSource(ReportingSource[S]):
    """A list of samples in which the next readable sample replaces one that cannot be read.

    The replacement depends only on the list and its files, so all ranks and all divisions of a batch agree. Each
    skipped sample is reported once, and their number when the source is closed.

    Attributes:
        skipped: the numbers of the unusable samples that have been met so far.
    """

    def __init__(self, source: NumberedSource[S]) -> None:
        super().__init__(source)
        self.skipped: set[int] = set()

    def read(self, index: int) -> S:
        """Return sample ``index`` or the next usable one; the first sample follows the last one.

        Raises:
            DataError: no sample can be used.
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
        why = f"; the error of the last one: {last}" if last else ""
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
            log.log(ANY_RANK, "skipped, the next usable sample replaces it: %s", why)


def handle_damage(source: NumberedSource[S], skips: bool) -> ReportingSource[S]:
    """Return ``source`` with a treatment of samples that cannot be read.

    Args:
        skips: whether other samples replace them. If not, the first one raises an error that names all.
    """
    return SkippingSource(source) if skips else ReportingSource(source)
