"""BLOCK: the best cut of a net into consecutive partitions, one a device, in the devices' order."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from bpt.parallel.pipeline.placement.loads import Loads
from bpt.parallel.pipeline.placement.partition_crossings import Floats
from bpt.parallel.pipeline.placement.spans import CostWeights, Cuts, PartitionCut, SpanCosts, worst_table

ALIKE = 0.02
"""Placements whose times differ by no more are alike; the one that fills memory more evenly is taken."""
NEAR = 1e-13  # relative: costs that are nearer are not searched between


def best_cut(loads: Loads) -> tuple[int, ...] | None:
    """Cut the partitions into one run a device, with a fast step (``StepTime``) and evenly filled memory.

    Only cuts that take at most ``ALIKE`` more than the fastest one count. The best one fills its fullest device least
    (``Loads.memory_shares``), then its emptiest device most, then is the fastest. A cut should spread a net: otherwise,
    under SEQUENTIAL, where nothing overlaps, a cut that saves a message would be better than one that halves memory.

    Whether limits on memory allow a fast enough cut is a search like that of ``fastest_cut``, over fewer runs. The
    narrowest such limits are found by halving the list of what runs fill.

    Returns:
        The first partition of each device; ``None``: no cut fits into the devices' memory and capacities.
    """
    found = _fastest(loads)
    if found is None:
        return None
    cuts, best, floor = found
    enough = best.cost * (1 + ALIKE)
    cuts = cuts.narrowed(enough, floor.slowest, floor.through)
    fills = np.unique(np.concatenate([costs[np.isfinite(costs)] for costs in cuts.fills]))
    least = float(worst_table(cuts.fills)[-1][-1])

    def some(low: float, high: float) -> bool:
        return _search(cuts.filling(low, high), floor, enough).cost <= enough

    above = fills[fills >= least]
    high = float(above[bisect_left(above, True, key=lambda fill: some(-np.inf, fill))])
    below = fills[fills <= high]
    low = float(below[bisect_left(below, True, key=lambda fill: not some(fill, high)) - 1])
    return _search(cuts.filling(low, high), floor).starts


def fastest_cut(loads: Loads) -> tuple[int, ...] | None:
    """Cut the partitions into one run a device, with the fastest possible step (``StepTime``).

    Of equally good cuts, the one whose slowest device is faster is preferred under SEQUENTIAL, and under DELAYED the
    one that takes the least seconds on all devices together.

    The cost has two parts: the time of the slowest device or link, and what the step takes without overlap. Both
    depend on each device's own partitions alone, since messages count where they are received. For a limit on the one
    part, dynamic programming over the devices finds the least of the other: with ``b`` partitions on the first ``j +
    1`` devices it is the least, over ``a``, of that with ``a`` on ``j`` devices and that of device ``j`` for ``[a,
    b)``. So the front of cuts that are best in one part or the other is searched by halving the range of limits;
    ranges in which nothing can be better than the best cut so far are left out, and so are borders of cuts that cannot.

    Returns:
        As ``best_cut``.
    """
    found = _fastest(loads)
    return None if found is None else found[1].starts


@dataclass(frozen=True)
class _Floor:
    """Lower bounds on the seconds of every cut: of the slowest device, and of all devices without overlap."""

    slowest: float
    through: float


def _fastest(loads: Loads) -> tuple[Cuts, PartitionCut, _Floor] | None:
    """Return all cuts, the one with the least cost, and the lower bounds; ``None`` if no cut fits."""
    spans = SpanCosts(loads)
    slowest = float(worst_table(spans.slowest)[-1][-1])
    if slowest == np.inf:
        return None
    cuts = Cuts.every(spans, CostWeights.of(loads.problem.filling))
    floor = _Floor(slowest, cuts.least_through(np.inf).through)
    return cuts, _search(cuts, floor), floor


def _search(cuts: Cuts, floor: _Floor, enough: float | None = None) -> PartitionCut:
    """Return the cut with the least cost, or any that costs at most ``enough``; its cost is infinite if none fits.

    With ``enough``, one that is dearer says only that none costs so little.
    """
    weights = cuts.weights
    last = cuts.least_through(np.inf)
    if last.cost == np.inf:
        return last
    if enough is not None and (last.cost <= enough or weights.cost(floor.slowest, last.through) > enough):
        return last
    best = min(cuts.least_through(floor.slowest), last, key=_cost)
    cuts = cuts.narrowed(best.cost, floor.slowest, floor.through)
    ranges = [(floor.slowest, last)]  # between a limit and a cut that has the least seconds in all of those above it
    while ranges and (enough is None or best.cost > enough):
        low, high = ranges.pop()
        least = weights.cost(low, high.through)
        if least >= best.cost * (1 - NEAR) or (enough is not None and least > enough):
            continue
        middle = cuts.least_through((low + high.slowest) / 2)
        if middle.cost < best.cost:
            best = middle
            cuts = cuts.narrowed(best.cost, floor.slowest, floor.through)
        ranges += [((low + high.slowest) / 2, high), (low, middle)]
    return best


def _cost(cut: PartitionCut) -> float:
    return cut.cost


def least_excess(loads: Loads) -> tuple[int, ...]:
    """Return the cut whose most overfull device lacks the least memory, for the error message."""
    excess = SpanCosts(loads).excess
    return _trace(worst_table(excess), excess)


def genes_of(cut: tuple[int, ...], n: int) -> list[int]:
    """Return the device of each of ``n`` partitions."""
    return [device for device, (a, b) in enumerate(pairwise((*cut, n))) for _ in range(a, b)]


def _trace(table: list[Floats], costs: list[Floats]) -> tuple[int, ...]:
    """Return the cut behind a table of worst costs."""
    end = len(table[0]) - 1
    starts = [0]
    for before, cost in zip(reversed(table[:-1]), reversed(costs[1:]), strict=True):
        end = int(np.maximum(before, cost[:, end]).argmin())
        starts.insert(1, end)
    return tuple(starts)
