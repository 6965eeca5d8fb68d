"""ProcessGrid: the place of a rank in its replica, and its communicators."""

from __future__ import annotations

from dataclasses import dataclass

from bpt.base.errors import UsageError
from bpt.base.log import plural
from bpt.config.plan.replica_layout import ReplicaLayout
from bpt.system.comm.base import Communicator
from bpt.system.comm.serial import SerialCommunicator


@dataclass(frozen=True)
class ProcessGrid:
    """The place of this rank in the layout of all ranks, and the communicators with those beside it.

    Attributes:
        world: all ranks of the job.
        layout: the replicas of all ranks.
        replica, stage, shard: the place of this rank.
        across_replicas: the ranks with the same number of stage and of shard. In a regular layout, they hold the same
            parameters.
        across_shards: the ranks with the same replica and stage: they share model-parallel layers.
        across_stages: the ranks with the same replica and shard, in order of the stages: a pipeline.
        in_replica: the ranks of the same replica: they hold one net together.
        across_samples: the ranks with the same number of stage.
    """

    world: Communicator
    layout: ReplicaLayout
    replica: int
    stage: int
    shard: int
    across_replicas: Communicator
    across_shards: Communicator
    across_stages: Communicator
    across_samples: Communicator
    in_replica: Communicator

    @classmethod
    def make(cls, world: Communicator, layout: ReplicaLayout) -> ProcessGrid:
        """Arrange the ranks of ``world``; a collective call."""
        assert layout.size == world.size, (layout, world.size)
        replica, stage, shard = layout.place(world.rank)
        return cls(
            world,
            layout,
            replica,
            stage,
            shard,
            across_replicas=world.Split(stage * layout.shards + shard),
            across_shards=world.Split(world.rank - shard),
            across_stages=world.Split(replica * layout.shards + shard),
            across_samples=world.Split(stage),
            in_replica=world.Split(replica),
        )

    @classmethod
    def regular(cls, world: Communicator, stages: int = 1, shards: int = 1) -> ProcessGrid:
        """Arrange the ranks of ``world`` as replica × stage × shard; a collective call.

        Raises:
            UsageError: the ranks do not divide into groups of ``stages`` × ``shards``.
        """
        if why := indivisible(world.size, stages, shards):
            raise UsageError(why)
        return cls.make(world, ReplicaLayout.regular(world.size, stages, shards))

    def Free(self) -> None:
        """Free all communicators but ``world``; a collective call."""
        parts = self.across_replicas, self.across_shards, self.across_stages, self.across_samples, self.in_replica
        for part in parts:
            part.Free()

    @classmethod
    def alone(cls) -> ProcessGrid:
        """Return the grid of one process."""
        return cls.regular(SerialCommunicator())

    @property
    def replicas(self) -> int:
        """The number of replicas."""
        return self.layout.replicas

    @property
    def stages(self) -> int:
        """The number of stages of this rank's replica."""
        return self.layout.stages[self.replica]

    @property
    def lane(self) -> int:
        """A number that ranks share which run the same layers: those of one stage of one kind of replica."""
        return self.layout.kind_of(self.replica) * self.layout.depth + self.stage

    @property
    def shards(self) -> int:
        """The number of shards of each stage."""
        return self.layout.shards

    def __str__(self) -> str:
        return str(self.layout)


def places_by_host(comm: Communicator) -> list[int]:
    """Return the place of each rank when those of a host follow each other; a collective call."""
    host = comm.Split_type_shared()
    firsts = comm.allgather(host.bcast(comm.rank))
    host.Free()
    order = sorted(range(comm.size), key=lambda rank: (firsts[rank], rank))
    return [order.index(rank) for rank in range(comm.size)]


def indivisible(ranks: int, stages: int, shards: int) -> str:
    """Return why the ranks do not divide into replicas of ``stages`` × ``shards``; "" if they do."""
    group = stages * shards
    if not ranks % group:
        return ""
    which = "num_shards" if stages == 1 else "num_stages"
    return (
        f"{plural(ranks, 'rank')} cannot be divided into num_stages {stages} × num_shards {shards} = {group} ranks a "
        f"replica: {ranks} / {group} is not whole; start a multiple of {group} ranks (mpirun -n "
        f"{group * max(1, ranks // group)}), or change {which}"
    )
