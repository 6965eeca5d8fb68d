"""BLOCK: the best cut of a net into consecutive partitions, one a device, in the devices' order."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from bpt.placement.loads import Floats, Loads
from bpt.placement.spans import SpanCosts
from bpt.placement.tables import sum_table, worst_table
from bpt.placement.weights import Weights

NEAR = 1e-13  # relative: costs that are nearer are not searched between


def best_cut(loads: Loads) -> tuple[int, ...] | None:
    """Cut the partitions into one run a device, so that a step is as fast as can be (``StepTime``).

    Of equally good cuts, the one whose slowest device is faster is preferred under SEQUENTIAL, and under DELAYED the
    one that takes the least seconds on all devices together.

    The cost has two parts: the slowest device's or link's time, and what the step takes without overlap. What a device
    receives depends on its own partitions alone, and so do both parts. For a limit on the one, dynamic programming over the devices finds the least of the other: with ``b`` partitions on the first ``j + 1``
    devices it is the least, over ``a``, of that with ``a`` on ``j`` devices and that of device ``j`` for ``[a, b)``.
    So the front of cuts that are best in one part or the other is searched by halving the range of limits, and ranges
    in which nothing can be better than the best cut so far are left out.

    Returns:
        The first partition of each device; ``None``: no cut fits into the devices' memory.
    """
    spans = SpanCosts(loads)
    fastest = float(worst_table(spans.slowest)[-1][-1])  # no slowest device takes less
    if fastest == np.inf:
        return None
    return _best(spans, fastest, Weights.of(loads.problem.filling)).starts


@dataclass(frozen=True)
class _Cut:
    """First partitions of the devices; seconds of the slowest one, of all without overlap, and the cost."""

    starts: tuple[int, ...]
    slowest: float
    through: float
    cost: float


def _best(spans: SpanCosts, fastest: float, weights: Weights) -> _Cut:
    """The cut with the least cost. ``fastest``: the least time of a slowest device."""
    last = _least_through(spans, np.inf, weights)
    best = min(_least_through(spans, fastest, weights), last, key=_cost)
    ranges = [(fastest, last)]  # between a limit and a cut that has the least seconds in all of those above it
    while ranges:
        low, high = ranges.pop()
        if weights.cost(low, high.through) >= best.cost * (1 - NEAR):
            continue
        middle = _least_through(spans, (low + high.slowest) / 2, weights)
        best = min(best, middle, key=_cost)
        ranges += [((low + high.slowest) / 2, high), (low, middle)]
    return best


def _cost(cut: _Cut) -> float:
    return cut.cost


def _least_through(spans: SpanCosts, limit: float, weights: Weights) -> _Cut:
    """Of the cuts whose devices' times are all within ``limit``, the one with the least seconds without overlap."""
    allowed = [np.where(a <= limit, b, np.inf) for a, b in zip(spans.slowest, spans.through, strict=True)]
    table = sum_table(allowed)
    end = spans.loads.n
    starts = [0]
    for before, cost in zip(reversed(table[:-1]), reversed(allowed[1:]), strict=True):
        end = int((before + cost[:, end]).argmin())
        starts.insert(1, end)
    runs = list(enumerate(pairwise((*starts, spans.loads.n))))
    slowest = max(float(spans.slowest[device][run]) for device, run in runs)
    through = float(table[-1][-1])
    return _Cut(tuple(starts), slowest, through, weights.cost(slowest, through))


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
