"""Allocation: which samples of the training data belong to which node (BPT-CNN, section 3.3.1)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
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
        """What the nodes have after they got ``more``. Neighbouring runs become one."""
        return Allocation(tuple(_joined(a, b) for a, b in zip(self.runs, more.runs, strict=True)))

    def without(self, nodes: Iterable[int]) -> Allocation:
        """The same, but ``nodes`` have nothing."""
        gone = frozenset(nodes)
        return Allocation(tuple(() if node in gone else runs for node, runs in enumerate(self.runs)))


def nothing(nodes: int) -> Allocation:
    """No samples for any of ``nodes``."""
    return Allocation(((),) * nodes)


def size(runs: Iterable[Run]) -> int:
    """The number of samples of ``runs``."""
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
