"""What a ring all-reduce must do: plain functions that each rank calls with its communicator.

Run over threads by ``tests/system/comm/test_ring_reduction.py``, over MPI by ``tests/mpi/test_contract.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.testing import assert_array_equal

from bpt.engine.instructions import ExchangeGradients
from bpt.system.comm import ring_reduction
from bpt.system.comm.base import Communicator
from bpt.system.comm.comm_thread import CommThread
from bpt.system.comm.ring_reduction import ring_allreduce
from tests.support.comm_contract.values import SUMMED, run_of
from tests.support.doubles.seen import Seen

Check = Callable[[Communicator], None]
COUNTS = (0, 1, 2, 3, 4, 5, 6, 7, 10, 23)  # of elements: fewer than ranks, as many, and more


def check_sums_of_any_number_of_elements_and_dtype(comm: Communicator) -> None:
    for dtype in (*SUMMED, np.float16, np.int8, np.complex128):
        for count in COUNTS:
            buffer = run_of(comm.rank, count, dtype)
            expected = np.sum([run_of(rank, count, dtype) for rank in range(comm.size)], axis=0, dtype=dtype)
            ring_allreduce(comm, buffer)
            assert buffer.dtype == dtype
            assert_array_equal(buffer, expected)


def check_buffers_of_any_shape(comm: Communicator) -> None:
    buffer = run_of(comm.rank, 24).reshape(2, 3, 4)
    ring_allreduce(comm, buffer)
    assert_array_equal(buffer, np.sum([run_of(rank, 24) for rank in range(comm.size)], axis=0).reshape(2, 3, 4))
    scalar = np.array(float(comm.rank + 1))
    ring_allreduce(comm, scalar)
    assert scalar == comm.size * (comm.size + 1) / 2


def check_all_have_the_same_bits(comm: Communicator) -> None:
    """Of numbers whose order matters: a piece p is summed from rank p on, once for all."""
    numbers = [np.random.default_rng(rank).standard_normal(101).astype(np.float32) for rank in range(comm.size)]
    buffer = numbers[comm.rank].copy()
    ring_allreduce(comm, buffer)
    bounds = [101 * piece // comm.size for piece in range(comm.size + 1)]
    expected = np.empty_like(buffer)
    for piece in range(comm.size):
        span = slice(bounds[piece], bounds[piece + 1])
        total = numbers[piece][span].copy()
        for step in range(1, comm.size):
            total += numbers[(piece + step) % comm.size][span]
        expected[span] = total
    assert_array_equal(buffer, expected)
    assert len(set(comm.allgather(buffer.tobytes()))) == 1


def check_bytes_sent_are_those_of_the_formula(comm: Communicator) -> None:
    """2 (P - 1) / P of the buffer, each way, if P divides it; else all but two pieces twice."""
    for count in (60, 61, 3):
        seen = Seen(comm)
        ring_allreduce(comm, np.zeros(count, np.float64))
        traffic = seen.calls()
        assert {method for _, method in traffic} <= {"Isend", "Irecv"}
        sent = sum(entry.sent for entry in traffic.values())
        received = sum(entry.received for entry in traffic.values())
        pieces = [count * (piece + 1) // comm.size - count * piece // comm.size for piece in range(comm.size)]
        assert max(pieces) - min(pieces) <= 1
        if comm.size == 1:
            assert traffic == {}
        elif count == 60:  # which 1 to 5 divide
            assert (sent, received) == (2 * (comm.size - 1) * 480 // comm.size,) * 2
        totals = comm.allgather((sent, received))
        assert sum(sent for sent, _ in totals) == sum(got for _, got in totals) == 2 * (comm.size - 1) * 8 * count
        if comm.size > 1:
            assert sent == 8 * (2 * count - pieces[(comm.rank + 1) % comm.size] - pieces[(comm.rank + 2) % comm.size])


def check_one_after_the_other_with_no_rank_in_step(comm: Communicator) -> None:
    """A rank may be an all-reduce ahead of its neighbour; messages stay apart, also from those of collectives."""
    buffers = [run_of(comm.rank, 5 + number, np.int64) for number in range(10)]
    for number, buffer in enumerate(buffers):
        ring_allreduce(comm, buffer)
        if number == 5:
            comm.Allreduce(total := np.array([comm.rank]))
            assert total[0] == comm.size * (comm.size - 1) // 2
    for number, buffer in enumerate(buffers):
        assert_array_equal(buffer, sum(run_of(rank, 5 + number, np.int64) for rank in range(comm.size)))


def check_large_ones_by_a_courier_while_the_caller_sums(comm: Communicator) -> None:
    comm_thread, apart = CommThread(comm), comm.Dup()
    buffer = np.full(2 * ring_reduction.CHUNK + 3, comm.rank + 1, np.float32)  # of several messages a piece
    comm_thread.submit(partial(ring_allreduce, apart, buffer), ExchangeGradients(0))
    for _ in range(20):
        comm.Allreduce(value := np.array([1.0]))
        assert value[0] == comm.size
    comm_thread.wait()
    comm_thread.close()
    assert_array_equal(buffer, np.full_like(buffer, comm.size * (comm.size + 1) / 2))


CHECKS: Sequence[Check] = [check for name, check in sorted(vars().items()) if name.startswith("check_")]
