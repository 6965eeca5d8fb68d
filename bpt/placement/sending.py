"""The best cut where blobs go to several devices, so that what a device sends depends on the cuts behind it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from bpt.placement.loads import ROUNDING
from bpt.placement.spans import SpanCosts
from bpt.placement.tables import sum_table

BANDS = 16


def best_with_sends(spans: SpanCosts, fastest: float, filling: float, limit: float) -> tuple[int, ...] | None:
    """The best cut with the true costs, if it is better than ``limit``.

    The slowest device's time is between ``fastest``, the least there is, and what leaves enough for the least seconds
    without overlap. This range is searched in bands, since in a narrow one the two parts of the cost are well bounded
    together.

    Args:
        filling: ``Problem.filling``.
    """
    least = float(sum_table(spans.inner)[-1][-1])
    most = (limit - filling * least) / (1 - filling) if filling < 1 else fastest
    found = None
    for low, high in pairwise(np.linspace(fastest, most, BANDS + 1).tolist()):
        better = _best_in_band(spans, low, high, filling, limit)
        if better is not None:
            found, limit = better.starts, better.worst + better.total
    return found


def _best_in_band(spans: SpanCosts, low: float, high: float, filling: float, limit: float) -> _Way | None:
    """The same, with the slowest device's time, each blob sent once, from ``low`` to ``high``.

    From the last device to the first: for each device and each first partition of it, all ways to cut what is behind
    that may still be best. Two of them differ in their worst time so far, in their sum without overlap, and in how
    many devices behind read each blob that is made before; a way that is worse in none of these makes the other one
    superfluous.
    """
    n, m = spans.loads.n, spans.loads.m
    inner = []
    for floor, seconds in zip(spans.floors, spans.inner, strict=True):
        allowed = floor <= high * (1 + ROUNDING)
        inner.append(np.where(allowed, filling * np.where(allowed, seconds, 0.0), np.inf))
    table = sum_table(inner)
    nothing = np.where(np.arange(n + 1) == 0, 0.0, np.inf)
    ways: dict[int, list[_Way]] = {n: [_Way((1 - filling) * low, 0.0, (), {})]}
    for device in reversed(range(m)):
        before = table[device - 1] if device else nothing
        bests: dict[int, list[_Way]] = {}
        for end, behind in ways.items():
            least = before + inner[device][:, end]
            for start in np.flatnonzero(least < np.inf).tolist():
                rest = float(before[start])
                for way in behind:
                    if way.worst + way.total + float(least[start]) < limit:
                        longer = _extended(spans, device, start, end, way, filling)
                        if longer.worst + longer.total + rest < limit:
                            _keep(bests.setdefault(start, []), longer)
        ways = bests
    return min(ways.get(0, []), key=lambda way: way.worst + way.total, default=None)


@dataclass(frozen=True)
class _Way:
    """A cut of the last partitions.

    ``worst``: the part of the cost that the slowest device makes; ``total``: that of the sum; ``readers``: for
    crossings that are read there the number of devices.
    """

    worst: float
    total: float
    starts: tuple[int, ...]
    readers: dict[int, int]

    def covers(self, other: _Way) -> bool:
        """Whether this one is worse than the other in nothing."""
        return (
            self.worst <= other.worst
            and self.total <= other.total
            and all(count <= other.readers.get(crossing, 0) for crossing, count in self.readers.items())
        )


def _extended(spans: SpanCosts, device: int, start: int, end: int, way: _Way, filling: float) -> _Way:
    made = spans.made(device, start, end)
    sends = sum(float(spans.loads.seconds[c]) * way.readers.get(c, 0) for c in made)
    inner = float(spans.inner[device][start, end])
    readers = {c: count for c, count in way.readers.items() if c not in made}
    for crossing in spans.read(device, start, end):
        readers[crossing] = readers.get(crossing, 0) + 1
    worst = max(way.worst, (1 - filling) * (inner + sends))
    return _Way(worst, way.total + filling * inner, (start, *way.starts), readers)


def _keep(ways: list[_Way], new: _Way) -> None:
    if any(way.covers(new) for way in ways):
        return
    ways[:] = [way for way in ways if not new.covers(way)]
    ways.append(new)
