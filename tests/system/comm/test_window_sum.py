"""WindowSum: sums in memory that ranks share, by ranks that are threads."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
import pytest

from bpt.system.comm import window_sum
from bpt.system.comm.base import Buffer, Communicator
from bpt.system.comm.window_sum import UNDIVIDED, WindowSum
from tests.support.doubles.seen import Seen
from tests.support.doubles.thread_ranks import run_ranks

ROOM = 4 * UNDIVIDED


def numbers(rank: int, size: int, dtype: str) -> Buffer:
    """Numbers whose sum depends on the order in which they are added, if they are not whole."""
    return np.random.default_rng(rank).normal(0, 100, size).astype(dtype)


@pytest.mark.parametrize("ranks", [2, 3, 5])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64"])
def test_all_ranks_get_the_sum_in_order_of_rank(ranks: int, dtype: str) -> None:
    item = np.dtype(dtype).itemsize
    # One element, what each rank sums alone, one element more, uneven slices, and several pieces.
    sizes = [1, UNDIVIDED // item, UNDIVIDED // item + 1, 3 * UNDIVIDED // item + 7, 2 * ROOM // item + 1]

    def run(comm: Communicator) -> None:
        summed = WindowSum(comm, ROOM)
        for size in sizes * 2:
            expected = numbers(0, size, dtype)
            for rank in range(1, comm.size):
                expected = expected + numbers(rank, size, dtype)
            buffer = numbers(comm.rank, size, dtype)
            summed.sum(buffer)
            np.testing.assert_array_equal(buffer, expected)
        summed.free()

    run_ranks(ranks, run)


def test_a_buffer_keeps_its_shape_and_an_empty_one_is_no_sum() -> None:
    def run(comm: Communicator) -> None:
        summed = WindowSum(comm, ROOM)
        buffer = np.full((2, 3), comm.rank + 1.0)
        summed.sum(np.zeros((0, 4)))
        summed.sum(buffer)
        assert buffer.tolist() == [[3.0] * 3] * 2
        summed.free()

    run_ranks(2, run)


def test_infinite_gradients_are_summed_without_a_warning() -> None:
    def run(comm: Communicator) -> None:
        summed = WindowSum(comm, ROOM)
        buffer = np.array([np.inf * (-1) ** comm.rank, 3e38], np.float32)
        summed.sum(buffer)
        assert np.isnan(buffer[0]) and np.isinf(buffer[1])
        summed.free()

    run_ranks(2, run)  # a warning is an error in tests


def test_a_fast_rank_does_not_overwrite_what_a_slow_one_still_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 1 adds the numbers of its first sum only when rank 0 has stored those of its second one."""
    stored = threading.Event()
    add = window_sum._add

    def run(comm: Communicator) -> None:
        summed = WindowSum(comm, ROOM)
        meet = summed._meet

        def note(mark: int) -> None:
            if comm.rank == 0 and summed._number == 2:
                stored.set()
            meet(mark)

        def add_late(parts: Sequence[Buffer], total: Buffer) -> None:
            assert threading.get_ident() != slow or stored.wait(60)
            add(parts, total)

        summed._meet = note  # type: ignore[method-assign]
        slow = comm.bcast(threading.get_ident(), root=1)
        if comm.rank == 0:
            monkeypatch.setattr(window_sum, "_add", add_late)
        comm.Barrier()
        for value in (1.0, 10.0, 100.0):
            buffer = np.full(3, value)
            summed.sum(buffer)
            assert (buffer == 2 * value).all()
        summed.free()

    run_ranks(2, run)


def test_a_wait_of_a_sum_is_no_call_of_its_own() -> None:
    """It is a part of the Allreduce that the communicator counts."""

    def run(comm: Communicator) -> None:
        summed = WindowSum(comm, ROOM)
        seen = Seen(comm)
        with comm.summing(4, np.dtype(np.float32)):
            summed.sum(np.ones(1, np.float32))
        assert [method for _, method in seen.calls()] == ["Allreduce"]
        summed.free()

    run_ranks(2, run)
