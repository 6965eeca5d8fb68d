"""BLOCK: the best cut of a net into consecutive partitions, one a device, in the devices' order."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from bpt.placement.loads import ROUNDING, Floats, Loads
from bpt.placement.spans import SpanCosts


def best_cut(loads: Loads) -> tuple[int, ...] | None:
    """Cut the partitions into one run a device, so that the slowest device is as fast as can be.

    A device's time is its work and what it sends and receives, as in ``Loads.times``; of equally good cuts, the one
    that takes the least seconds on all devices together is preferred, because a pipeline takes as long to fill.

    Dynamic programming over the devices: the best time of ``b`` partitions on the first ``j + 1`` devices is the
    least, over ``a``, of the greater of the best for ``a`` on ``j`` devices and the time of device ``j`` for
    ``[a, b)``. What a device sends depends on later cuts in one case: a blob that several partitions behind read goes
    to as many devices as they are on. This program counts one. If the cut that it finds is dearer by that, a second
    search with the true costs, which leaves out all that the first has shown to be no better, finds the best one.

    Returns:
        The first partition of each device; ``None``: no cut fits into the devices' memory.
    """
    spans = SpanCosts(loads)
    floor = _table(spans.floors)
    limit = float(floor[-1][-1])
    if limit == np.inf:
        return None
    cut = _least_sum(spans.floors, limit)
    if _slowest(loads, cut) <= limit * (1 + ROUNDING):
        return cut
    fallback = min((cut, _trace(floor, spans.floors)), key=lambda found: _slowest(loads, found))
    slowest = _slowest(loads, fallback)
    return (_search(spans, floor, slowest) if slowest > limit * (1 + ROUNDING) else None) or fallback


def least_excess(loads: Loads) -> tuple[int, ...]:
    """The cut whose most overfull device lacks the least memory; it tells what a user must be told."""
    excess = SpanCosts(loads).excess
    return _trace(_table(excess), excess)


def genes_of(cut: tuple[int, ...], n: int) -> list[int]:
    """The device of each of ``n`` partitions."""
    return [device for device, (a, b) in enumerate(pairwise((*cut, n))) for _ in range(a, b)]


def _slowest(loads: Loads, cut: tuple[int, ...]) -> float:
    return float(loads.times(np.array([genes_of(cut, loads.n)])).max())


def _table(costs: list[Floats]) -> list[Floats]:
    """``table[j][b]``: the least worst cost of partitions ``[0, b)`` on devices ``0 .. j``."""
    table = [costs[0][0]]
    for cost in costs[1:]:
        table.append(np.maximum(table[-1][:, None], cost).min(0))
    return table


def _trace(table: list[Floats], costs: list[Floats]) -> tuple[int, ...]:
    """The cut behind a table of worst costs."""
    end = len(table[0]) - 1
    starts = [0]
    for before, cost in zip(reversed(table[:-1]), reversed(costs[1:]), strict=True):
        end = int(np.maximum(before, cost[:, end]).argmin())
        starts.insert(1, end)
    return tuple(starts)


def _least_sum(costs: list[Floats], limit: float) -> tuple[int, ...]:
    """Of the cuts whose costs are all within ``limit``, that with the least sum."""
    allowed = [np.where(cost <= limit * (1 + ROUNDING), cost, np.inf) for cost in costs]
    table = [allowed[0][0]]
    for cost in allowed[1:]:
        table.append((table[-1][:, None] + cost).min(0))
    end = len(table[0]) - 1
    starts = [0]
    for before, cost in zip(reversed(table[:-1]), reversed(allowed[1:]), strict=True):
        end = int((before + cost[:, end]).argmin())
        starts.insert(1, end)
    return tuple(starts)


def _search(spans: SpanCosts, floor: list[Floats], limit: float) -> tuple[int, ...] | None:
    """The best cut with the true costs, if it is better than ``limit``.

    From the last device to the first: for each device and each first partition of it, all ways to cut what is behind
    that may still be best. Two of them differ in their worst time so far, and in how many devices behind read each
    blob that is made before; a way that is worse in none of these makes the other one superfluous.
    """
    n, m = spans.loads.n, spans.loads.m
    ways: dict[int, list[_Way]] = {n: [_Way(0.0, (), {})]}
    for device in reversed(range(m)):
        bests: dict[int, list[_Way]] = {}
        for end, behind in ways.items():
            before = floor[device - 1] if device else np.where(np.arange(n + 1) == 0, 0.0, np.inf)
            bound = np.maximum(before, spans.floors[device][:, end])
            for start in np.flatnonzero(bound < limit):
                for way in behind:
                    _keep(bests.setdefault(int(start), []), _extended(spans, device, int(start), end, way), limit)
        ways = bests
    done = ways.get(0, [])
    return min(done, key=lambda way: way.worst).starts if done else None


class _Way:
    """A cut of the last partitions: worst time, starts, and for crossings read there the number of devices."""

    def __init__(self, worst: float, starts: tuple[int, ...], readers: dict[int, int]) -> None:
        self.worst = worst
        self.starts = starts
        self.readers = readers

    def covers(self, other: _Way) -> bool:
        """Whether this one is worse than the other in nothing."""
        return self.worst <= other.worst and all(
            count <= other.readers.get(crossing, 0) for crossing, count in self.readers.items()
        )


def _extended(spans: SpanCosts, device: int, start: int, end: int, way: _Way) -> _Way:
    made = spans.made(device, start, end)
    sends = sum(float(spans.loads.seconds[c]) * way.readers.get(c, 0) for c in made)
    worst = max(way.worst, float(spans.inner[device][start, end]) + sends)
    readers = {c: count for c, count in way.readers.items() if c not in made}
    for crossing in spans.read(device, start, end):
        readers[crossing] = readers.get(crossing, 0) + 1
    return _Way(worst, (start, *way.starts), readers)


def _keep(ways: list[_Way], new: _Way, limit: float) -> None:
    if new.worst >= limit or any(way.covers(new) for way in ways):
        return
    ways[:] = [way for way in ways if not new.covers(way)]
    ways.append(new)
