"""ReplicaLayout: which ranks form which replica of the net, and which stage each rank is. No MPI."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, groupby

from bpt.base.log import plural

Holders = tuple[int, ...]
"""The stage that holds a layer in each kind of replica: replicas of one kind hold it on the same stage."""


@dataclass(frozen=True)
class ReplicaLayout:
    """The replicas of a run, in the order of their ranks; ranks are ordered by stage and then by shard.

    In a regular layout all replicas have equally many stages. Otherwise a *kind* of replica is a number of stages.

    Attributes:
        stages: the number of stages of each replica.
        shards: the number of ranks of each stage.
    """

    stages: tuple[int, ...] = (1,)
    shards: int = 1

    @classmethod
    def regular(cls, ranks: int, stages: int = 1, shards: int = 1) -> ReplicaLayout:
        """Return the layout of as many equal replicas as ``ranks`` suffice for, and of one at least."""
        return cls((stages,) * max(1, ranks // (stages * shards)), shards)

    @property
    def size(self) -> int:
        """The number of ranks."""
        return sum(self.stages) * self.shards

    @property
    def replicas(self) -> int:
        """The number of replicas."""
        return len(self.stages)

    @cached_property
    def kinds(self) -> tuple[int, ...]:
        """The different numbers of stages, ascending."""
        return tuple(sorted(set(self.stages)))

    @property
    def depth(self) -> int:
        """The number of stages of the longest pipeline."""
        return self.kinds[-1]

    def kind_of(self, replica: int) -> int:
        """Return the place of a replica's number of stages in ``kinds``."""
        return self.kinds.index(self.stages[replica])

    @cached_property
    def first_ranks(self) -> tuple[int, ...]:
        """The first rank of each replica."""
        return tuple(stages * self.shards for stages in accumulate(self.stages[:-1], initial=0))

    def rank(self, replica: int, stage: int = 0, shard: int = 0) -> int:
        """Return the rank with this place."""
        return self.first_ranks[replica] + stage * self.shards + shard

    def place(self, rank: int) -> tuple[int, int, int]:
        """Return the replica, the stage and the shard of a rank."""
        replica = max(number for number, first in enumerate(self.first_ranks) if first <= rank)
        return replica, *divmod(rank - self.first_ranks[replica], self.shards)

    def ranks_of(self, holders: Holders) -> list[int]:
        """Return the ranks that hold the same layers, the first shard of each, in the order of the replicas."""
        return [self.rank(replica, holders[self.kind_of(replica)]) for replica in range(self.replicas)]

    def without(self, lost: Collection[int]) -> ReplicaLayout:
        """Return the layout in which each replica has a stage less for each of its ranks that is lost."""
        left = [
            sum(first + stage not in lost for stage in range(stages))
            for first, stages in zip(self.first_ranks, self.stages, strict=True)
        ]
        return ReplicaLayout(tuple(stages for stages in left if stages))

    def __str__(self) -> str:
        """Return ``8 ranks = 2 replicas × 2 stages × 2 shards``; extents of 1 after the first are omitted."""
        alike = [(stages, len(list(run))) for stages, run in groupby(self.stages)]
        parts = [
            " × ".join(plural(n, name) for n, name in extents if n > 1 or name == "replica")
            for extents in ([(n, "replica"), (stages, "stage"), (self.shards, "shard")] for stages, n in alike)
        ]
        return f"{plural(self.size, 'rank')} = {' + '.join(parts)}"
