"""Allocation: the samples of the training data that belong to each node (BPT-CNN, section 3.3.1).

IDPA's equations (BPT-CNN, Eq. 2 to 5) give each node a number of samples by its speed, without taking samples away. In
all of them ``have`` is the number of samples that each node has, and ``total`` is the number for all nodes together.
The result is the new number of each node: it is never less than before, and the sum is exactly ``total``. Times are
seconds for a sample.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import fmean
from typing import TypeAlias

Run: TypeAlias = tuple[int, int]
"""Samples ``[start, stop)``: positions in an order of all samples that is fixed for the whole training, such as a
Sampler's order of epoch 0."""


@dataclass(frozen=True)
class Allocation:
    """The samples of each node.

    Attributes:
        runs: the runs of each node, in the order in which it got them. No run is empty, and no two overlap.
    """

    runs: tuple[tuple[Run, ...], ...]

    @property
    def counts(self) -> tuple[int, ...]:
        """The number of samples of each node: n_j."""
        return tuple(size(runs) for runs in self.runs)

    def plus(self, more: Allocation) -> Allocation:
        """Return this allocation with ``more`` added; adjacent runs become one."""
        return Allocation(tuple(_joined(a, b) for a, b in zip(self.runs, more.runs, strict=True)))

    def without(self, nodes: Iterable[int]) -> Allocation:
        """Return this allocation without the samples of ``nodes``."""
        gone = frozenset(nodes)
        return Allocation(tuple(() if node in gone else runs for node, runs in enumerate(self.runs)))


def empty_allocation(nodes: int) -> Allocation:
    """Return an allocation without samples for any of ``nodes``."""
    return Allocation(((),) * nodes)


def size(runs: Iterable[Run]) -> int:
    """Return the number of samples of ``runs``."""
    return sum(stop - start for start, stop in runs)


def deal(runs: Iterable[Run], counts: Sequence[int]) -> Allocation:
    """Divide the ``sum(counts)`` samples of ``runs``: node 0 gets the first ``counts[0]``, and so on."""
    supply = iter(runs)
    start = stop = 0
    dealt = []
    for count in counts:
        mine: list[Run] = []
        while count:
            if start == stop:
                start, stop = next(supply)
            end = min(stop, start + count)
            mine.append((start, end))
            count -= end - start
            start = end
        dealt.append(tuple(mine))
    assert start == stop and next(supply, None) is None, "more samples than counts"
    return Allocation(tuple(dealt))


def _joined(first: tuple[Run, ...], then: tuple[Run, ...]) -> tuple[Run, ...]:
    if first and then and first[-1][1] == then[0][0]:
        return *first[:-1], (first[-1][0], then[0][1]), *then[1:]
    return first + then


def harmonic(total: int, have: Sequence[int], times: Sequence[float]) -> list[int]:
    """Return how many samples each node trains, so that all nodes finish an iteration together.

    Nodes finish after T = total / Σ 1/t̄_j seconds, and have trained n'_j = T / t̄_j samples. A node that has more than
    that gets nothing; the others share the rest in the same way. Numbers are rounded by largest remainders; of equal
    remainders, that of the lower node counts first. So if a node that gets samples finishes after another one, the
    difference is at most one sample's time on the slower of the two.
    """
    assert total >= sum(have) and all(time > 0 for time in times), (total, have, times)
    ideals = _finishing_together(total, have, times)
    totals = [max(held, int(ideal)) for held, ideal in zip(have, ideals, strict=True)]
    left = total - sum(totals)
    assert 0 <= left <= len(totals), (left, totals)
    # Nodes with more than their ideal number come last, after all that were rounded down.
    for node in sorted(range(len(totals)), key=lambda node: totals[node] - ideals[node])[:left]:
        totals[node] += 1
    return totals


def _finishing_together(total: int, have: Sequence[int], times: Sequence[float]) -> list[float]:
    """Return n'_j of each node: nodes with more samples keep theirs, and the others share the rest of ``total``."""
    quickest = min(times)
    speeds = [quickest / time for time in times]  # at most 1, so no sum overflows
    order = sorted(range(len(have)), key=lambda node: have[node] * times[node])
    # Sums over the first 1, 2, … nodes; differences of sums would lose the slow nodes to rounding.
    paces = list(accumulate(speeds[node] for node in order))
    free = total
    while len(paces) > 1:
        last = order[len(paces) - 1]
        if have[last] * times[last] <= free / paces[-1] * quickest:
            break
        free -= have[last]
        paces.pop()
    return [free / paces[-1] * speed for speed in speeds]


def as_printed(total: int, have: Sequence[int], times: Sequence[float]) -> list[int]:
    """Return the counts of Eq. 3 to 5: n'_j = ⌊T_a / t̄_j⌋ with T_a = total · t̄ / m; the last node gets the rest.

    t̄ is the arithmetic mean of the times, which is above the harmonic one. So with different speeds the equations ask
    for more samples than there are, and by Eq. 5 the last node would get a negative number. Here the nodes get samples
    in order, as in the loop of Algorithm 3.1, until there are no more, and the last nodes get nothing.
    """
    finish = total * fmean(times) / len(times)
    return _in_order(total, have, [int(finish / time) for time in times])


def by_frequency(total: int, have: Sequence[int], frequencies: Sequence[float]) -> list[int]:
    """Return the counts of Eq. 2, rounded as in Algorithm 3.1: ⌊total · μ_j / Σ μ⌋; the last node gets the rest."""
    together = math.fsum(frequencies)
    return _in_order(total, have, [int(total * frequency / together) for frequency in frequencies])


def _in_order(total: int, have: Sequence[int], wanted: Sequence[int]) -> list[int]:
    left = total - sum(have)
    assert left >= 0, (total, have)
    totals = list(have)
    for node, want in enumerate(wanted[:-1]):
        more = min(max(0, want - have[node]), left)
        totals[node] += more
        left -= more
    totals[-1] += left
    return totals
