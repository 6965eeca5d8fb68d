"""The speed of ranks that run a part of a net each: stages of a pipeline, and shards of its split layers.

A profile has the times of the whole net on each rank. The time of a part follows from its part of the operations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from bpt.config.plan.replica_layout import ReplicaLayout
from bpt.parallel.balance.speed import MOST, SpeedFunction


@dataclass(frozen=True)
class Division:
    """The division of a net over ranks.

    Attributes:
        layout: the replicas.
        parts: for each kind of replica, the part of the net's operations of each stage.
        split: the same, in layers that are split over the shards of the stage.
        masters: whether the first shard runs all layers except the split ones, and the others only these
            (MASTER_SLAVE). Otherwise each shard runs all layers on samples of its own, and slices of split ones (PEER).
    """

    layout: ReplicaLayout
    parts: Sequence[Sequence[float]] = ((1.0,),)
    split: Sequence[Sequence[float]] = ((0.0,),)
    masters: bool = False

    @property
    def group(self) -> int:
        """The number of ranks of a replica that get shares of the batch."""
        return 1 if self.masters else self.layout.shards

    @property
    def share_ranks(self) -> list[list[int]]:
        """The ranks that work on each share of the batch, one for each stage."""
        return [
            [self.layout.rank(replica, stage, shard) for stage in range(stages)]
            for replica, stages in enumerate(self.layout.stages)
            for shard in range(self.group)
        ]

    def share_of(self, rank: int) -> int:
        """Return the number of the share that a rank works on; for a slave that of its master."""
        replica, _, shard = self.layout.place(rank)
        return replica * self.group + (0 if self.masters else shard)

    def functions(self, ranks: Sequence[SpeedFunction]) -> list[SpeedFunction]:
        """Return the time function of each share, from those of all ranks with the whole net."""
        return [self._of(ranks, each) for each in self.share_ranks]

    @property
    def split_part(self) -> float:
        """The part of the net's operations in split layers."""
        return sum(self.split[0])

    def _of(self, ranks: Sequence[SpeedFunction], each: Sequence[int]) -> SpeedFunction:
        own, kind = [ranks[rank] for rank in each], self.layout.kinds.index(len(each))
        if not self.masters or self.layout.shards == 1:
            return pipelined(own, self.parts[kind])
        slaves = [[ranks[rank + slave] for slave in range(1, self.layout.shards)] for rank in each]
        return pipelined(own, self.parts[kind], self.split[kind], slaves)


def pipelined(
    functions: Sequence[SpeedFunction],
    parts: Sequence[float],
    split: Sequence[float] = (),
    slaves: Sequence[Sequence[SpeedFunction]] = (),
) -> SpeedFunction:
    """Return the time function of a pipeline, which is that of its slowest stage.

    Args:
        functions: the function of each stage's rank with the whole net.
        parts: the part of the net's work of each stage, and of its blobs.
        split: the part of the net's work that slaves do, while their master waits.
        slaves: the functions of the slaves of each stage with the whole net.
    """

    def stage(number: int, size: int) -> float:
        if not slaves:
            return parts[number] * functions[number].seconds(size)
        away = split[number] / len(slaves[number]) * max(slave.seconds(size) for slave in slaves[number])
        return (parts[number] - split[number]) * functions[number].seconds(size) + away

    sizes = {size for function in (*functions, *(one for each in slaves for one in each)) for size in function.sizes}
    caps = [
        math.floor(function.cap / part) if part else MOST
        for part, function in zip(parts, functions, strict=True)
        if function.cap is not None
    ]
    cap = min(*caps, MOST) if caps else None
    return _through(sizes, lambda size: max(stage(number, size) for number in range(len(parts))), cap)


def sharing(
    functions: Sequence[SpeedFunction], split: float, divide: Callable[[Sequence[SpeedFunction], int], Sequence[int]]
) -> SpeedFunction:
    """Return the times of ranks with samples of their own that share split layers and wait for each other (PEER).

    Args:
        functions: the function of each rank with the whole net.
        split: the part of the net's work in split layers. Each rank does its slice of them for the samples of all.
        divide: returns the number of samples of each rank.
    """

    def seconds(size: int) -> float:
        return max(peer_seconds(functions, divide(functions, size), split, is_synchronous=True))

    caps = [function.cap for function in functions if function.cap is not None]
    cap = min(sum(caps), MOST) if len(caps) == len(functions) else None
    ranks = len(functions)
    sizes = {each for f in functions for size in f.sizes for each in (size, size * ranks) if cap is None or each <= cap}
    return _through(sizes, seconds, cap)


def peer_seconds(
    functions: Sequence[SpeedFunction], counts: Sequence[int], split: float, is_synchronous: bool = False
) -> list[float]:
    """Return the seconds in which each of several peers computes.

    Args:
        functions: the function of each rank with the whole net.
        counts: the number of samples of each rank.
        split: the part of the net's work in split layers.
        is_synchronous: whether all take as long as the slowest in split layers, since they wait for it.
    """
    slices = [split * function.seconds(sum(counts)) / len(functions) for function in functions]
    own = [(1 - split) * function.seconds(count) for function, count in zip(functions, counts, strict=True)]
    return [a + (max(slices) if is_synchronous else b) for a, b in zip(own, slices, strict=True)]


def _through(sizes: Iterable[int], seconds: Callable[[int], float], cap: int | None) -> SpeedFunction:
    """Return the piecewise linear function through the seconds of ``sizes``; it is 0 at 0."""
    ordered = sorted(sizes)
    return SpeedFunction(tuple(ordered), tuple(map(seconds, ordered)), cap)
