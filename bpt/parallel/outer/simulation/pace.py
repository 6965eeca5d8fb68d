"""Simulated resources: nodes whose speed changes, and first-come-first-served queues."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence


class SpeedProfile:
    """The speed of a node over time, relative to its start; work is measured in seconds at the start's speed.

    Args:
        changes: (time, factor), by rising time; of several at one time the last counts.
    """

    def __init__(self, changes: Sequence[tuple[float, float]] = ()) -> None:
        self._times = [time for time, _ in changes]
        self._factors = [1.0, *(factor for _, factor in changes)]

    def end(self, start: float, work: float) -> float:
        """Return when ``work`` that begins at ``start`` is done."""
        for until, factor in self._stretches(start):
            if work <= (until - start) * factor:
                return start + work / factor
            work -= (until - start) * factor
            start = until
        raise AssertionError("the last stretch is without end")

    def done(self, start: float, now: float) -> float:
        """Return the work done from ``start`` to ``now``."""
        work = 0.0
        for until, factor in self._stretches(start):
            if now <= until:
                return work + (now - start) * factor
            work += (until - start) * factor
            start = until
        raise AssertionError("the last stretch is without end")

    def _stretches(self, start: float) -> Iterator[tuple[float, float]]:
        """Yield (end, factor) of each stretch of constant speed from ``start`` on."""
        for number in range(bisect_right(self._times, start), len(self._times)):
            yield self._times[number], self._factors[number]
        yield math.inf, self._factors[-1]


class Fifo:
    """A first-come-first-served resource: a link in one direction, or the server's arithmetic.

    Attributes:
        free: from when on nobody is served.
        busy: seconds that it has served, or will, all together.
    """

    def __init__(self) -> None:
        self.free = 0.0
        self.busy = 0.0

    def serve(self, now: float, seconds: float) -> float:
        """Serve a request of ``seconds`` at ``now``; return when it starts. Call in the order of arrival."""
        start = max(now, self.free)
        self.free = start + seconds
        self.busy += seconds
        return start
