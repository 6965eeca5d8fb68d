"""BLOCK: the best cut of a net into consecutive partitions, one a device, in the devices' order."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from bpt.placement.loads import ROUNDING, Floats, Loads
from bpt.placement.sending import best_with_sends
from bpt.placement.spans import SpanCosts
from bpt.placement.tables import sum_table, worst_table
from bpt.placement.weights import Weights

NEAR = 1e-13  # relative: costs that are nearer are not searched between


def best_cut(loads: Loads) -> tuple[int, ...] | None:
    """Cut the partitions into one run a device, so that a step is as fast as can be (``StepTime``).

    Of equally good cuts, the one whose slowest device is faster is preferred under SEQUENTIAL, and under DELAYED the
    one that takes the least seconds on all devices together.

    The cost has two parts: the slowest device's time, and what the step takes without overlap. For a limit on the one,
    dynamic programming over the devices finds the least of the other: with ``b`` partitions on the first ``j + 1``
    devices it is the least, over ``a``, of that with ``a`` on ``j`` devices and that of device ``j`` for ``[a, b)``.
    So the front of cuts that are best in one part or the other is searched by halving the range of limits, and ranges
    in which nothing can be better than the best cut so far are left out.

    What a device sends depends on later cuts in one case: a blob that several partitions behind read goes to as many
    devices as they are on. The slowest device's time is reckoned with one. If the cut that is found is dearer by that,
    a second search with the true costs, which leaves out all that the first has shown to be no better, finds the best.

    Returns:
        The first partition of each device; ``None``: no cut fits into the devices' memory.
    """
    spans = SpanCosts(loads)
    fastest = float(worst_table(spans.floors)[-1][-1])  # no slowest device takes less
    if fastest == np.inf:
        return None
    weights = Weights.of(loads.problem.filling)
    front = _front(spans, fastest, weights)
    genes = np.array([genes_of(cut.starts, loads.n) for cut in front])
    costs = weights.cost(loads.times(genes).max(1), np.array([cut.through for cut in front]))
    best, least = front[int(costs.argmin())].starts, float(costs.min())
    if least <= min(cut.cost for cut in front) * (1 + ROUNDING):
        return best
    return best_with_sends(spans, fastest, loads.problem.filling, least) or best


@dataclass(frozen=True)
class _Cut:
    """First partitions of the devices; the slowest device's seconds, those of all without overlap, and the cost."""

    starts: tuple[int, ...]
    slowest: float
    through: float
    cost: float


def _front(spans: SpanCosts, fastest: float, weights: Weights) -> list[_Cut]:
    """Cuts, the best one among them, if each blob is sent once. ``fastest``: the least time of a slowest device."""
    met = [_least_through(spans, fastest, weights), _least_through(spans, np.inf, weights)]
    ranges = [(fastest, met[-1])]  # between a limit and a cut that has the least seconds in all of those above it
    least = min(cut.cost for cut in met)
    while ranges:
        low, high = ranges.pop()
        if weights.cost(low, high.through) >= least * (1 - NEAR):
            continue
        middle = _least_through(spans, (low + high.slowest) / 2, weights)
        met.append(middle)
        least = min(least, middle.cost)
        ranges += [((low + high.slowest) / 2, high), (low, middle)]
    return met


def _least_through(spans: SpanCosts, limit: float, weights: Weights) -> _Cut:
    """Of the cuts whose devices' times are all within ``limit``, the one with the least seconds without overlap."""
    allowed = [np.where(floor <= limit, inner, np.inf) for floor, inner in zip(spans.floors, spans.inner, strict=True)]
    table = sum_table(allowed)
    end = spans.loads.n
    starts = [0]
    for before, cost in zip(reversed(table[:-1]), reversed(allowed[1:]), strict=True):
        end = int((before + cost[:, end]).argmin())
        starts.insert(1, end)
    runs = list(enumerate(pairwise((*starts, spans.loads.n))))
    slowest = max(float(spans.floors[device][run]) for device, run in runs)
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
