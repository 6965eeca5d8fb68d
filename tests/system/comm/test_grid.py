"""ProcessGrid: places by arithmetic, and what it refuses. Its communicators: see contract."""

from __future__ import annotations

from typing import Any

import pytest

from bpt.base.errors import UsageError
from bpt.system.comm.base import Communicator
from bpt.system.comm.grid import ProcessGrid
from tests.support.doubles.thread_ranks import run_ranks


def test_ranks_are_replica_stage_shard_the_last_fastest() -> None:
    """rank = (replica · stages + stage) · shards + shard, with 2 stages of 3 shards."""

    def place(comm: Communicator) -> tuple[Any, ...]:
        grid = ProcessGrid.regular(comm, stages=2, shards=3)
        groups = (grid.across_replicas, grid.across_shards, grid.across_samples)
        return grid.replica, grid.stage, grid.shard, str(grid), *(group.allgather(comm.rank) for group in groups)

    text = "12 ranks = 2 replicas × 2 stages × 3 shards"
    places = run_ranks(12, place)
    assert places[0] == (0, 0, 0, text, [0, 6], [0, 1, 2], [0, 1, 2, 6, 7, 8])
    assert places[5] == (0, 1, 2, text, [5, 11], [3, 4, 5], [3, 4, 5, 9, 10, 11])
    assert places[10] == (1, 1, 1, text, [4, 10], [9, 10, 11], [3, 4, 5, 9, 10, 11])
    for rank, (replica, stage, shard, *_) in enumerate(places):
        assert rank == (replica * 2 + stage) * 3 + shard


def test_one_process_is_a_grid() -> None:
    grid = ProcessGrid.alone()
    assert (grid.replicas, grid.stages, grid.shards, grid.replica, grid.stage, grid.shard) == (1, 1, 1, 0, 0, 0)
    assert str(grid) == "1 rank = 1 replica"


@pytest.mark.parametrize(
    ("ranks", "stages", "shards", "message"),
    [
        (3, 1, 2, "3 ranks cannot be divided into num_stages 1 × num_shards 2 = 2 ranks a replica: 3 / 2 is not whole; "
         "start a multiple of 2 ranks (mpirun -n 2), "
        "or change num_shards"),
        (5, 2, 2, "5 ranks cannot be divided into num_stages 2 × num_shards 2 = 4 ranks a replica: 5 / 4 is not whole; "
         "start a multiple of 4 ranks (mpirun -n 4), "
        "or change num_stages"),
        (1, 1, 3, "1 rank cannot be divided into num_stages 1 × num_shards 3 = 3 ranks a replica: 1 / 3 is not whole; "
         "start a multiple of 3 ranks (mpirun -n 3), "
        "or change num_shards"),
    ],
)  # fmt: skip
def test_ranks_that_do_not_divide_are_refused_with_the_arithmetic(
    ranks: int, stages: int, shards: int, message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        run_ranks(ranks, lambda comm: ProcessGrid.regular(comm, stages, shards))
    assert str(caught.value) == message
