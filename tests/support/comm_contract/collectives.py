"""Collectives on buffers and objects."""

from __future__ import annotations

import numpy as np
from numpy.testing import assert_array_equal

from bpt.system.comm.base import Buffer, Communicator
from tests.support.comm_contract.values import MOVED, SUMMED, counts_of, run_of


def check_bcast(comm: Communicator) -> None:
    for root in range(comm.size):
        for dtype in MOVED:
            buffer = run_of(comm.rank, 5, dtype)
            comm.Bcast(buffer, root)
            assert_array_equal(buffer, run_of(root, 5, dtype))


def check_bcast_of_a_matrix_and_of_nothing(comm: Communicator) -> None:
    buffer = np.full((2, 3), comm.rank, np.float32)
    comm.Bcast(buffer, comm.size - 1)
    assert_array_equal(buffer, np.full((2, 3), comm.size - 1, np.float32))
    comm.Bcast(np.empty(0, np.float32), 0)
    comm.Bcast(scalar := np.array(float(comm.rank)), 0)
    assert scalar == 0


def check_reduce(comm: Communicator) -> None:
    # The sum over r of (10 r + 1 + i) is 10 · size (size - 1) / 2 + size (1 + i).
    expected = 5 * comm.size * (comm.size - 1) + comm.size * (1 + np.arange(4))
    for root in range(comm.size):
        for dtype in SUMMED:
            buffer = run_of(comm.rank, 4, dtype)
            comm.Reduce(buffer, root)
            assert_array_equal(buffer, expected if comm.rank == root else run_of(comm.rank, 4, dtype))


def check_allreduce(comm: Communicator) -> None:
    expected = 5 * comm.size * (comm.size - 1) + comm.size * (1 + np.arange(6)).reshape(2, 3)
    for dtype in SUMMED:
        buffer = run_of(comm.rank, 6, dtype).reshape(2, 3)
        comm.Allreduce(buffer)
        assert_array_equal(buffer, expected)
    comm.Allreduce(np.empty(0, np.float32))


def check_allreduce_is_equal_on_all_ranks_to_the_last_bit(comm: Communicator) -> None:
    for count in (1, 7, 1000, 20_011):  # libraries take another algorithm for each
        values = np.random.default_rng(comm.rank).standard_normal(count).astype(np.float32)
        comm.Allreduce(values)
        everywhere = comm.allgather(values.tobytes())
        assert everywhere == [everywhere[0]] * comm.size
        exact = sum(np.random.default_rng(rank).standard_normal(count).astype(np.float32) for rank in range(comm.size))
        np.testing.assert_allclose(values, exact, rtol=0, atol=1e-5)


def check_gatherv(comm: Communicator) -> None:
    counts = counts_of(comm.size)
    expected = np.concatenate([run_of(rank, count) for rank, count in enumerate(counts)])
    for root in range(comm.size):
        for dtype in MOVED:
            receive = np.zeros(sum(counts), dtype) if comm.rank == root else None
            comm.Gatherv(run_of(comm.rank, counts[comm.rank], dtype), receive, counts, root)
            if receive is not None:
                assert_array_equal(receive, expected.astype(dtype))


def check_scatterv(comm: Communicator) -> None:
    counts = counts_of(comm.size)
    start = sum(counts[: comm.rank])
    for root in range(comm.size):
        for dtype in MOVED:
            send = np.arange(sum(counts)).astype(dtype) if comm.rank == root else None
            receive = np.zeros(counts[comm.rank], dtype)
            comm.Scatterv(send, receive, counts, root)
            assert_array_equal(receive, np.arange(start, start + counts[comm.rank]).astype(dtype))


def check_allgatherv(comm: Communicator) -> None:
    counts = counts_of(comm.size)
    expected = np.concatenate([run_of(rank, count) for rank, count in enumerate(counts)])
    for dtype in MOVED:
        receive = np.zeros(sum(counts), dtype)
        comm.Allgatherv(run_of(comm.rank, counts[comm.rank], dtype), receive, counts)
        assert_array_equal(receive, expected.astype(dtype))


def check_alltoallv(comm: Communicator) -> None:
    # Rank s sends (s + 2 r) mod 4 elements to rank r: 100 s + 10 r, and on.
    def length(source: int, target: int) -> int:
        return (source + 2 * target) % 4

    def message(source: int, target: int) -> Buffer:
        return 100 * source + 10 * target + np.arange(length(source, target))

    ranks = range(comm.size)
    for dtype in (np.float32, np.int64, np.float16):
        send = np.concatenate([message(comm.rank, r) for r in ranks]).astype(dtype)
        send_counts = [length(comm.rank, r) for r in ranks]
        receive_counts = [length(r, comm.rank) for r in ranks]
        receive = np.zeros(sum(receive_counts), dtype)
        comm.Alltoallv(send, send_counts, receive, receive_counts)
        assert_array_equal(receive, np.concatenate([message(r, comm.rank) for r in ranks]).astype(dtype))


def check_alltoallv_of_nothing(comm: Communicator) -> None:
    none = [0] * comm.size
    comm.Alltoallv(np.empty(0, np.float32), none, np.empty(0, np.float32), none)


def check_reduce_scatter(comm: Communicator) -> None:
    counts = counts_of(comm.size)
    total = 5 * comm.size * (comm.size - 1) + comm.size * (1 + np.arange(sum(counts)))
    start = sum(counts[: comm.rank])
    for dtype in SUMMED:
        receive = np.zeros(counts[comm.rank], dtype)
        send = run_of(comm.rank, sum(counts), dtype)
        comm.Reduce_scatter(send, receive, counts)
        assert_array_equal(receive, total[start : start + counts[comm.rank]])
        assert_array_equal(send, run_of(comm.rank, sum(counts), dtype))


def check_objects(comm: Communicator) -> None:
    for root in range(comm.size):
        assert comm.bcast({"from": comm.rank}, root) == {"from": root}
    assert comm.allgather("abc"[: comm.rank]) == ["abc"[:rank] for rank in range(comm.size)]
