"""What reduction and broadcast along a tree must do: plain functions that each rank calls with its communicator.

Run over threads by ``tests/system/comm/test_tree_collectives.py``, over MPI by ``tests/mpi/test_contract.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.testing import assert_array_equal

from bpt.system.comm import tree_collectives
from bpt.system.comm.base import Communicator
from bpt.system.comm.tree_collectives import tree_bcast, tree_reduce
from bpt.system.events.event import Event
from tests.support.comm_contract.values import MOVED, SUMMED, run_of

Check = Callable[[Communicator], None]
COUNTS = (0, 1, 2, 7, 23)  # of elements
# Drawn by hand: rank → whom it sends its sums to.
PARENTS: Mapping[int, Mapping[int, int]] = {
    1: {}, 2: {1: 0}, 3: {1: 0, 2: 0}, 4: {1: 0, 2: 0, 3: 2}, 5: {1: 0, 2: 0, 3: 2, 4: 0},
    6: {1: 0, 2: 0, 3: 2, 4: 0, 5: 4}, 7: {1: 0, 2: 0, 3: 2, 4: 0, 5: 4, 6: 4},
}  # fmt: skip


def check_sums_at_the_root(comm: Communicator) -> None:
    for dtype in (*SUMMED, np.float16):
        for count in COUNTS:
            buffer = run_of(comm.rank, count, dtype)
            tree_reduce(comm, buffer)
            if comm.rank == 0:
                expected = np.sum([run_of(rank, count, dtype) for rank in range(comm.size)], axis=0, dtype=dtype)
                assert buffer.dtype == dtype
                assert_array_equal(buffer, expected)


def check_all_get_what_the_root_has(comm: Communicator) -> None:
    for dtype in MOVED:
        for count in COUNTS:
            buffer = run_of(comm.rank, count, dtype)
            tree_bcast(comm, buffer)
            assert_array_equal(buffer, run_of(0, count, dtype))


def check_trees_of_any_shape_of_buffer(comm: Communicator) -> None:
    buffer = run_of(comm.rank, 24).reshape(2, 3, 4)
    tree_reduce(comm, buffer)
    tree_bcast(comm, buffer)
    assert_array_equal(buffer, np.sum([run_of(rank, 24) for rank in range(comm.size)], axis=0).reshape(2, 3, 4))


def check_each_adds_its_children_in_their_order(comm: Communicator) -> None:
    """Of numbers whose order matters: the same bits from run to run, and whatever the length of messages."""
    numbers = [np.random.default_rng(rank).standard_normal(101).astype(np.float32) for rank in range(comm.size)]

    def summed(rank: int) -> np.ndarray:
        total: np.ndarray = numbers[rank].copy()
        for child, parent in PARENTS[comm.size].items():
            if parent == rank:
                total += summed(child)
        return total

    buffer = numbers[comm.rank].copy()
    tree_reduce(comm, buffer)
    if comm.rank == 0:
        assert_array_equal(buffer, summed(0))


def check_bytes_by_link(comm: Communicator) -> None:
    """Each rank but the root sends its buffer up once, to its parent, and gets one from there."""
    links: dict[tuple[str, int], int] = {}

    def note(event: Event) -> None:
        if event.method and event.peer is not None and event.sent + event.received:
            key = event.method, event.peer
            links[key] = links.get(key, 0) + event.sent + event.received

    parents, own = PARENTS[comm.size], comm.rank
    children = [child for child, parent in parents.items() if parent == own]
    ranks = comm.world_ranks
    with comm.events.into(note):
        tree_reduce(comm, np.zeros(30))
        up = dict(links)
        links.clear()
        tree_bcast(comm, np.zeros(30))
    above = [parents[own]] if own else []
    assert up == {("Isend", ranks[rank]): 240 for rank in above} | {("Irecv", ranks[rank]): 240 for rank in children}
    assert links == {("Irecv", ranks[rank]): 240 for rank in above} | {("Isend", ranks[rank]): 240 for rank in children}


def check_trees_one_after_the_other_with_no_rank_in_step(comm: Communicator) -> None:
    for number in range(10):
        buffer = run_of(comm.rank, 5 + number, np.int64)
        tree_reduce(comm, buffer)
        tree_bcast(comm, buffer)
        assert_array_equal(buffer, sum(run_of(rank, 5 + number, np.int64) for rank in range(comm.size)))


def check_trees_of_large_buffers(comm: Communicator) -> None:
    buffer = np.full(2 * tree_collectives.CHUNK // 4 + 3, comm.rank + 1, np.float32)  # of several messages
    tree_reduce(comm, buffer)
    tree_bcast(comm, buffer)
    assert_array_equal(buffer, np.full_like(buffer, comm.size * (comm.size + 1) / 2))


CHECKS: Sequence[Check] = [check for name, check in sorted(vars().items()) if name.startswith("check_")]
