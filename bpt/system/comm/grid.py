"""ProcessGrid: the ranks as replica × stage × shard."""

from __future__ import annotations

from dataclasses import dataclass

from bpt.base.errors import UsageError
from bpt.system.comm.base import Communicator
from bpt.system.comm.serial import SerialCommunicator


@dataclass(frozen=True)
class ProcessGrid:
    """The place of this rank in the grid, and the communicators along the axes (MPI's Cartesian ones).

    Attributes:
        world: all ranks of the job.
        replicas, stages, shards: the extents of the axes; the last one is the fastest.
        replica, stage, shard: the place of this rank.
        across_replicas: the ranks with the same stage and shard: they hold the same parameters.
        across_shards: the ranks with the same replica and stage: they share model-parallel layers.
        across_stages: the ranks with the same replica and shard, in order of the stages: a pipeline.
        in_replica: the ranks of the same replica: they hold one net together.
        across_samples: the ranks with the same stage.
    """

    world: Communicator
    replicas: int
    stages: int
    shards: int
    replica: int
    stage: int
    shard: int
    across_replicas: Communicator
    across_shards: Communicator
    across_stages: Communicator
    across_samples: Communicator
    in_replica: Communicator

    @classmethod
    def make(cls, world: Communicator, stages: int = 1, shards: int = 1) -> ProcessGrid:
        """Arrange the ranks of ``world``; a collective call.

        Raises:
            UsageError: the ranks do not divide into groups of ``stages`` × ``shards``.
        """
        if why := indivisible(world.size, stages, shards):
            raise UsageError(why)
        replicas = world.size // (stages * shards)
        cart = world.Create_cart((replicas, stages, shards))
        replica, stage, shard = cart.coords
        grid = cls(
            world,
            replicas,
            stages,
            shards,
            replica,
            stage,
            shard,
            across_replicas=cart.Sub((True, False, False)),
            across_shards=cart.Sub((False, False, True)),
            across_stages=cart.Sub((False, True, False)),
            across_samples=cart.Sub((True, False, True)),
            in_replica=cart.Sub((False, True, True)),
        )
        cart.Free()
        return grid

    def Free(self) -> None:
        """Free all communicators but ``world``; a collective call."""
        parts = self.across_replicas, self.across_shards, self.across_stages, self.across_samples, self.in_replica
        for part in parts:
            part.Free()

    @classmethod
    def alone(cls) -> ProcessGrid:
        """Return the grid of one process."""
        return cls.make(SerialCommunicator())

    def __str__(self) -> str:
        return arrangement(self.world.size, self.stages, self.shards)


def places_by_host(comm: Communicator) -> list[int]:
    """Return the place of each rank when those of a host follow each other; a collective call."""
    host = comm.Split_type_shared()
    firsts = comm.allgather(host.bcast(comm.rank))
    host.Free()
    order = sorted(range(comm.size), key=lambda rank: (firsts[rank], rank))
    return [order.index(rank) for rank in range(comm.size)]


def arrangement(ranks: int, stages: int, shards: int) -> str:
    """Return ``8 ranks = 2 replicas × 2 stages × 2 shards``; extents of 1 after the first are omitted."""
    extents = [(ranks // (stages * shards), "replica")]
    extents += [(n, name) for n, name in ((stages, "stage"), (shards, "shard")) if n > 1]
    return f"{_count(ranks, 'rank')} = {' × '.join(_count(n, name) for n, name in extents)}"


def indivisible(ranks: int, stages: int, shards: int) -> str:
    """Return why the ranks do not divide into replicas of ``stages`` × ``shards``; "" if they do."""
    group = stages * shards
    if not ranks % group:
        return ""
    which = "num_shards" if stages == 1 else "num_stages"
    return (
        f"{_count(ranks, 'rank')} cannot be divided into num_stages {stages} × num_shards {shards} = {group} ranks a "
        f"replica: {ranks} / {group} is not whole; start a multiple of {group} ranks (mpirun -n "
        f"{group * max(1, ranks // group)}), or change {which}"
    )


def _count(n: int, name: str) -> str:
    return f"{n} {name}" if n == 1 else f"{n} {name}s"
