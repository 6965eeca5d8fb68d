"""The speed of ranks that run a part of a net each: stages of a pipeline, and shards of its split layers.

A profile is of the whole net on each rank. What a part takes follows from its share of the net's operations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from bpt.parallel.balance.speed import MOST, SpeedFunction


@dataclass(frozen=True)
class Division:
    """How the ranks of a run divide its net: replica by replica, of each stage by stage, of each shard by shard.

    Attributes:
        replicas: of the net, of ``len(parts) * shards`` ranks each.
        parts: of the net's operations, that each stage does.
        split: of the net's operations, those of each stage in layers that are split over its shards.
        shards: ranks of a stage.
        masters: the first shard runs all layers but the split ones, the others these alone (MASTER_SLAVE); or else each
            shard runs all layers on samples of its own, and slices of the split ones (PEER).
    """

    replicas: int
    parts: Sequence[float] = (1.0,)
    split: Sequence[float] = (0.0,)
    shards: int = 1
    masters: bool = False

    @property
    def group(self) -> int:
        """The number of ranks of a replica that get shares of the batch."""
        return 1 if self.masters else self.shards

    @property
    def sharers(self) -> list[list[int]]:
        """The ranks of each participant that gets a share of the batch: one for each stage."""
        stages = range(len(self.parts))
        return [
            [(replica * len(self.parts) + stage) * self.shards + shard for stage in stages]
            for replica in range(self.replicas)
            for shard in range(self.group)
        ]

    def sharer_of(self, rank: int) -> int:
        """Return the index in ``sharers`` of whose samples a rank works on; for a slave its master's."""
        replica, shard = rank // (len(self.parts) * self.shards), rank % self.shards
        return replica * self.group + (0 if self.masters else shard)

    def functions(self, ranks: Sequence[SpeedFunction]) -> list[SpeedFunction]:
        """Return the time function of each of ``sharers``, from those of all ranks with the whole net."""
        return [self._of(ranks, each) for each in self.sharers]

    def _of(self, ranks: Sequence[SpeedFunction], each: Sequence[int]) -> SpeedFunction:
        own = [ranks[rank] for rank in each]
        if not self.masters or self.shards == 1:
            return pipelined(own, self.parts)
        slaves = [[ranks[rank + slave] for slave in range(1, self.shards)] for rank in each]
        return pipelined(own, self.parts, self.split, slaves)


def pipelined(
    functions: Sequence[SpeedFunction],
    parts: Sequence[float],
    split: Sequence[float] = (),
    slaves: Sequence[Sequence[SpeedFunction]] = (),
) -> SpeedFunction:
    """Return the time function of a pipeline, which is that of its slowest stage.

    Args:
        functions: of each stage's rank with the whole net.
        parts: of the net's work, that each stage does; of so much of the net it keeps the blobs, as far as memory goes.
        split: of that, the part that slaves do, while their master waits.
        slaves: their functions with the whole net, of each stage.
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
        functions: of each rank with the whole net.
        split: the part of the net's work in split layers. Each rank does its slice of them for the samples of all.
        divide: says how many of a number of samples each rank gets.
    """

    def seconds(size: int) -> float:
        return max(peer_seconds(functions, divide(functions, size), split, apart=True))

    caps = [function.cap for function in functions if function.cap is not None]
    cap = min(sum(caps), MOST) if len(caps) == len(functions) else None
    ranks = len(functions)
    sizes = {each for f in functions for size in f.sizes for each in (size, size * ranks) if cap is None or each <= cap}
    return _through(sizes, seconds, cap)


def peer_seconds(
    functions: Sequence[SpeedFunction], counts: Sequence[int], split: float, apart: bool = False
) -> list[float]:
    """Return how long each of ranks that share split layers computes, with so many samples of its own.

    Args:
        split: see ``sharing``.
        apart: as long as the slowest in split layers, which the others wait for.
    """
    slices = [split * function.seconds(sum(counts)) / len(functions) for function in functions]
    own = [(1 - split) * function.seconds(count) for function, count in zip(functions, counts, strict=True)]
    return [a + (max(slices) if apart else b) for a, b in zip(own, slices, strict=True)]


def _through(sizes: Iterable[int], seconds: Callable[[int], float], cap: int | None) -> SpeedFunction:
    """Return the piecewise linear function through ``sizes``; it is 0 at 0."""
    ordered = sorted(sizes)
    return SpeedFunction(tuple(ordered), tuple(map(seconds, ordered)), cap)
