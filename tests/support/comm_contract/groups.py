"""New communicators: splits, copies, grids."""

from __future__ import annotations

import numpy as np
import pytest

from bpt.base.errors import UsageError
from bpt.system.comm.base import Communicator
from bpt.system.comm.grid import ProcessGrid


def check_rank_and_size(comm: Communicator) -> None:
    assert comm.allgather(comm.rank) == list(range(comm.size))
    assert comm.host
    assert 0 <= comm.rank < comm.size


def check_split(comm: Communicator) -> None:
    color = comm.rank % 2
    part = comm.Split(color, key=-comm.rank)  # in reverse order
    members = [rank for rank in reversed(range(comm.size)) if rank % 2 == color]
    assert (part.size, part.rank) == (len(members), members.index(comm.rank))
    assert part.allgather(comm.rank) == members
    part.Allreduce(total := np.array([float(comm.rank)]))
    assert total[0] == sum(members)


def check_split_into_singles(comm: Communicator) -> None:
    single = comm.Split(comm.rank)
    assert (single.rank, single.size) == (0, 1)
    single.Barrier()
    single.Allreduce(value := np.array([comm.rank]))
    assert value[0] == comm.rank


def check_dup_is_apart(comm: Communicator) -> None:
    """Messages of one communicator are not received by the other, though all else is equal."""
    twin = comm.Dup()
    assert (twin.rank, twin.size) == (comm.rank, comm.size)
    assert twin.events is comm.events
    left, right = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    if comm.size > 1:
        first, second = np.zeros(1), np.zeros(1)
        out = np.array([1.0]), np.array([2.0])
        requests = [twin.Irecv(second, left), comm.Irecv(first, left)]
        requests += [comm.Isend(out[0], right), twin.Isend(out[1], right)]
        for request in requests:
            request.Wait()
        assert (first[0], second[0]) == (1.0, 2.0)


def check_grid(comm: Communicator) -> None:
    grid = ProcessGrid.regular(comm, shards=2) if comm.size % 2 == 0 else ProcessGrid.regular(comm)
    shards = 2 if comm.size % 2 == 0 else 1
    assert (grid.replicas, grid.stages, grid.shards) == (comm.size // shards, 1, shards)
    assert (grid.replica, grid.stage, grid.shard) == (comm.rank // shards, 0, comm.rank % shards)
    assert grid.across_shards.allgather(comm.rank) == [grid.replica * shards + s for s in range(shards)]
    assert grid.across_replicas.allgather(comm.rank) == list(range(grid.shard, comm.size, shards))
    assert grid.across_samples.allgather(comm.rank) == list(range(comm.size))
    assert grid.world is comm


def check_grid_of_stages(comm: Communicator) -> None:
    grid = ProcessGrid.regular(comm, stages=comm.size)
    assert (grid.replica, grid.stage, grid.shard) == (0, comm.rank, 0)
    assert [grid.across_replicas.size, grid.across_shards.size, grid.across_samples.size] == [1, 1, 1]


def check_grid_refuses_what_does_not_divide(comm: Communicator) -> None:
    with pytest.raises(UsageError, match=rf"{comm.size} / 6 is not whole.*mpirun -n 6"):
        ProcessGrid.regular(comm, stages=2, shards=3)


def check_free(comm: Communicator) -> None:
    """What was given back leaves the others as they are, also those that it was made of, or that were made of it."""
    for _ in range(3):
        twin = comm.Dup()
        part = twin.Split(comm.rank % 2)
        twin.Barrier()
        twin.Free()
        assert part.allgather(comm.rank) == list(range(comm.rank % 2, comm.size, 2))
        part.Free()
    ProcessGrid.regular(comm, stages=comm.size).Free()
    assert comm.allgather(comm.rank) == list(range(comm.size))
