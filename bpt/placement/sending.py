"""The best cut where blobs go to several devices, so that what a device sends depends on the cuts behind it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bpt.placement.loads import Floats
from bpt.placement.spans import SpanCosts
from bpt.placement.tables import sum_table


def best_with_sends(spans: SpanCosts, slowest: list[Floats], filling: float, limit: float) -> tuple[int, ...] | None:
    """The best cut with the true costs, if it is better than ``limit``.

    From the last device to the first: for each device and each first partition of it, all ways to cut what is behind
    that may still be best. Two of them differ in their worst time so far, in their sum without overlap, and in how
    many devices behind read each blob that is made before; a way that is worse in none of these makes the other one
    superfluous.

    Args:
        slowest: for each device and each partition behind its last one, what the slowest of the devices up to it takes
            at least.
        filling: ``Problem.filling``. Where it is 0, sums do not count.
    """
    n, m = spans.loads.n, spans.loads.m
    worsts = [(1 - filling) * table for table in slowest]
    # Without a sum there is nothing to add: runs that are not possible are infinite in the other tables, too.
    inner = [filling * costs if filling else np.zeros_like(costs) for costs in spans.inner]
    sums = sum_table(inner)
    nothing = np.where(np.arange(n + 1) == 0, 0.0, np.inf)
    ways: dict[int, list[_Way]] = {n: [_Way(0.0, 0.0, (), {})]}
    for device in reversed(range(m)):
        worst, total = (worsts[device - 1], sums[device - 1]) if device else (nothing, nothing)
        bests: dict[int, list[_Way]] = {}
        for end, behind in ways.items():
            here = np.maximum(worst, (1 - filling) * spans.floors[device][:, end])
            least = total + inner[device][:, end] + min(way.total for way in behind)
            for start in np.flatnonzero(here + least < limit).tolist():
                for way in behind:
                    longer = _extended(spans, device, start, end, way, filling)
                    if max(longer.worst, worst[start]) + longer.total + total[start] < limit:
                        _keep(bests.setdefault(start, []), longer)
        ways = bests
    done = ways.get(0, [])
    return min(done, key=lambda way: way.worst + way.total).starts if done else None


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
