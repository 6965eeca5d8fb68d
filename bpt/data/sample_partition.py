"""Allocation: which samples of the training data belong to which node (BPT-CNN, section 3.3.1).

How many each node gets, by its speed, if it may not lose what it has, are the equations of IDPA (BPT-CNN, Eq. 2 to 5).
In all of them ``have`` is what the nodes have, ``total`` what they are to have together, and the result what each is to
have: never less than before, and exactly ``total`` together. Times are seconds a sample.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import fmean
from typing import TypeAlias

Run: TypeAlias = tuple[int, int]
"""Samples ``[start, stop)``: positions in one order of all samples that is fixed for the whole training, such as the
one that a Sampler gives epoch 0."""


@dataclass(frozen=True)
class Allocation:
    """The samples of each node.

    Attributes:
        runs: for each node its runs, in the order in which it got them. None is empty, and no two overlap.
    """

    runs: tuple[tuple[Run, ...], ...]

    @property
    def counts(self) -> tuple[int, ...]:
        """The number of samples of each node: n_j."""
        return tuple(size(runs) for runs in self.runs)

    def plus(self, more: Allocation) -> Allocation:
        """Return what the nodes have after they got ``more``. Neighbouring runs become one."""
        return Allocation(tuple(_joined(a, b) for a, b in zip(self.runs, more.runs, strict=True)))

    def without(self, nodes: Iterable[int]) -> Allocation:
        """Return the same, but ``nodes`` have nothing."""
        gone = frozenset(nodes)
        return Allocation(tuple(() if node in gone else runs for node, runs in enumerate(self.runs)))


def empty_allocation(nodes: int) -> Allocation:
    """Return an allocation without samples for any of ``nodes``."""
    return Allocation(((),) * nodes)


def size(runs: Iterable[Run]) -> int:
    """Return the number of samples of ``runs``."""
    return sum(stop - start for start, stop in runs)


def deal(runs: Iterable[Run], counts: Sequence[int]) -> Allocation:
    """Divide ``runs``, which have ``sum(counts)`` samples: the first ``counts[0]`` of them to node 0, and so on."""
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
    that gets nothing; the others share the rest in the same way. Whole numbers by largest remainders, of equal ones the
    lower node first. So a node that gets something finishes after no other node by more than one sample's time, of the
    slower of the two.
    """
    assert total >= sum(have) and all(time > 0 for time in times), (total, have, times)
    ideals = _finishing_together(total, have, times)
    totals = [max(held, int(ideal)) for held, ideal in zip(have, ideals, strict=True)]
    left = total - sum(totals)
    assert 0 <= left <= len(totals), (left, totals)
    # A node that has more than its ideal comes last, behind all that were rounded down.
    for node in sorted(range(len(totals)), key=lambda node: totals[node] - ideals[node])[:left]:
        totals[node] += 1
    return totals


def _finishing_together(total: int, have: Sequence[int], times: Sequence[float]) -> list[float]:
    """n'_j of each node. Those that have more keep it; all others together get what is left of ``total``."""
    quickest = min(times)
    speeds = [quickest / time for time in times]  # at most 1, so no sum overflows
    order = sorted(range(len(have)), key=lambda node: have[node] * times[node])
    # Sums over the first 1, 2, … nodes; differences of sums would lose the slow nodes beside the quick ones.
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
    """Eq. 3 to 5: T_a = total · t̄ / m with the arithmetic mean t̄, n'_j = ⌊T_a / t̄_j⌋; the last node gets what is left.

    On unlike nodes that asks for more samples than there are, since the arithmetic mean of times is above the harmonic
    one. By Eq. 5 the last node would then get a negative number; here the nodes are served in order, as in the loop
    of Algorithm 3.1, until there are no more, and those at the end get nothing.
    """
    finish = total * fmean(times) / len(times)
    return _in_order(total, have, [int(finish / time) for time in times])


def by_frequency(total: int, have: Sequence[int], frequencies: Sequence[float]) -> list[int]:
    """Eq. 2, with the rounding of Algorithm 3.1: ⌊total · μ_j / Σ μ⌋, and the last node gets what is left."""
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
