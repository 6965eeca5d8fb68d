"""BLOCK: the best cut of a net into consecutive partitions, one a device, in the devices' order."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from bpt.placement.loads import Floats, Loads
from bpt.placement.narrowing import Cut, Cuts
from bpt.placement.spans import SpanCosts
from bpt.placement.tables import worst_table
from bpt.placement.weights import Weights

NEAR = 1e-13  # relative: costs that are nearer are not searched between


def best_cut(loads: Loads) -> tuple[int, ...] | None:
    """Cut the partitions into one run a device, so that a step is as fast as can be (``StepTime``).

    Of equally good cuts, the one whose slowest device is faster is preferred under SEQUENTIAL, and under DELAYED the
    one that takes the least seconds on all devices together.

    The cost has two parts: the time of the slowest device or link, and what the step takes without overlap. Both
    depend on each device's own partitions alone, since messages count where they are received. For a limit on the one
    part, dynamic programming over the devices finds the least of the other: with ``b`` partitions on the first ``j +
    1`` devices it is the least, over ``a``, of that with ``a`` on ``j`` devices and that of device ``j`` for ``[a,
    b)``. So the front of cuts that are best in one part or the other is searched by halving the range of limits;
    ranges in which nothing can be better than the best cut so far are left out, and so are borders of cuts that cannot.

    Returns:
        The first partition of each device; ``None``: no cut fits into the devices' memory.
    """
    spans = SpanCosts(loads)
    fastest = float(worst_table(spans.slowest)[-1][-1])  # no slowest device takes less
    if fastest == np.inf:
        return None
    return _best(spans, fastest, Weights.of(loads.problem.filling)).starts


def _best(spans: SpanCosts, fastest: float, weights: Weights) -> Cut:
    """The cut with the least cost. ``fastest``: the least time of a slowest device."""
    cuts = Cuts.every(spans, weights)
    last = cuts.least_through(np.inf)
    best = min(cuts.least_through(fastest), last, key=_cost)
    cuts = cuts.narrowed(best.cost, fastest, last.through)
    ranges = [(fastest, last)]  # between a limit and a cut that has the least seconds in all of those above it
    while ranges:
        low, high = ranges.pop()
        if weights.cost(low, high.through) >= best.cost * (1 - NEAR):
            continue
        middle = cuts.least_through((low + high.slowest) / 2)
        if middle.cost < best.cost:
            best = middle
            cuts = cuts.narrowed(best.cost, fastest, last.through)
        ranges += [((low + high.slowest) / 2, high), (low, middle)]
    return best


def _cost(cut: Cut) -> float:
    return cut.cost


def least_excess(loads: Loads) -> tuple[int, ...]:
    """The cut whose most overfull device lacks the least memory; it tells what a user must be told."""
    excess = SpanCosts(loads).excess
    return _trace(worst_table(excess), excess)


def genes_of(cut: tuple[int, ...], n: int) -> list[int]:
    """The device of each of ``n`` partitions."""
    return [device for device, (a, b) in enumerate(pairwise((*cut, n))) for _ in range(a, b)]


def _trace(table: list[Floats], costs: list[Floats]) -> tuple[int, ...]:
    """The cut behind a table of worst costs."""
    end = len(table[0]) - 1
    starts = [0]
    for before, cost in zip(reversed(table[:-1]), reversed(costs[1:]), strict=True):
        end = int(np.maximum(before, cost[:, end]).argmin())
        starts.insert(1, end)
    return tuple(starts)
