"""Placement: which device runs which layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Placement:
    """Partitions and their devices.

    Attributes:
        starts: the first layer of each partition, ascending; the first is 0.
        stages: the device of each partition. Neighbours may be on the same one.
        convergence: of GABRA: the fitness of the best chromosome at the start and after each generation.
    """

    starts: tuple[int, ...]
    stages: tuple[int, ...]
    convergence: tuple[float, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        assert len(self.starts) == len(self.stages) and self.starts[0] == 0, self
        assert list(self.starts) == sorted(set(self.starts)), self.starts


def joined(starts: Sequence[int], stages: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The same with neighbours on one device as one."""
    kept = [i for i in range(len(starts)) if not i or stages[i] != stages[i - 1]]
    return tuple(starts[i] for i in kept), tuple(stages[i] for i in kept)
