"""Ranks that are threads: results, failures, hangs, and what only they check."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pytest

from bpt.system.comm.base import Communicator
from tests.support.doubles.meeting import AnotherRankError
from tests.support.doubles.thread_ranks import run_ranks


def test_results_come_by_rank() -> None:
    assert run_ranks(3, lambda comm: (comm.rank, comm.size)) == [(0, 3), (1, 3), (2, 3)]


def test_sums_are_in_order_of_rank() -> None:
    """2²⁴ + 1 is not a float32: (2²⁴ + 1) - 2²⁴ is 0, while 2²⁴ - 2²⁴ + 1 is 1."""

    def add(comm: Communicator, summands: list[float]) -> float:
        value = np.array(summands[comm.rank], np.float32)
        comm.Allreduce(value)
        return float(value)

    assert run_ranks(3, lambda comm: add(comm, [2**24, 1, -(2**24)])) == [0, 0, 0]
    assert run_ranks(3, lambda comm: add(comm, [2**24, -(2**24), 1])) == [1, 1, 1]


def test_the_first_error_is_raised_and_ends_the_calls_of_all_other_ranks() -> None:
    seen = []

    def work(comm: Communicator) -> None:
        if comm.rank == 2:
            raise KeyError("two")
        try:
            comm.Barrier()
        except AnotherRankError as error:
            seen.append((comm.rank, str(error), type(error.__cause__)))
            raise

    with pytest.raises(KeyError, match="two"):
        run_ranks(4, work)
    assert sorted(seen) == [(rank, "Barrier: another rank failed", KeyError) for rank in (0, 1, 3)]


def test_calls_after_a_failure_fail_too() -> None:
    raised = []

    def work(comm: Communicator) -> None:
        twin = comm.Dup()
        if comm.rank == 0:
            raise KeyError("zero")
        # When the first call has failed, rank 0 has.
        calls = (comm.Barrier, twin.Barrier, lambda: twin.Recv(np.zeros(1), 0), lambda: comm.Split(1))
        for call in (*calls, lambda: comm.Irecv(np.zeros(1), 0).Test()):
            try:
                call()
            except AnotherRankError as error:
                raised.append(str(error))

    with pytest.raises(KeyError):
        run_ranks(2, work)
    assert raised == [
        "Barrier: another rank failed",
        "Barrier: another rank failed",
        "Recv from 0: another rank failed",
        "allgather: another rank failed",
        "Recv from 0: another rank failed",
    ]


def exchange(comm: Communicator) -> None:
    """As MPI's may, a send waits for its receiver: programs must not rely on a buffer in between."""
    comm.Send(np.zeros(1), 1 - comm.rank)
    comm.Recv(np.zeros(1), 1 - comm.rank)


@pytest.mark.parametrize(
    ("first", "second", "error", "message"),
    [
        (
            lambda comm: comm.Barrier(),
            lambda comm: comm.Recv(np.zeros(1), 0),
            TimeoutError,
            "rank 0 waits in Barrier, rank 1 waits in Recv from 0",
        ),
        (exchange, exchange, TimeoutError, "rank 0 waits in Send to 1, rank 1 waits in Send to 0"),
        (
            lambda comm: comm.Bcast(np.zeros(2)),
            lambda comm: comm.Barrier(),
            AssertionError,
            r"the ranks do not agree.*Bcast.*Barrier",
        ),
        (
            lambda comm: comm.Recv(np.zeros(3), 1),
            lambda comm: comm.Send(np.zeros(2), 0),
            AssertionError,
            "16 bytes sent, 24 expected",
        ),
    ],
    ids=["waits for each other", "sends that meet", "different collectives at once", "a message of another size"],
)
def test_ranks_that_do_not_go_together(
    first: Callable[[Communicator], None], second: Callable[[Communicator], None], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        run_ranks(2, lambda comm: (second if comm.rank else first)(comm), timeout=3.0)


def test_a_rank_that_never_comes_back_becomes_an_error_that_names_it() -> None:
    never = threading.Event()
    with pytest.raises(TimeoutError, match=r"rank 1 has not come back after 3 s; none waits"):
        run_ranks(2, lambda comm: comm.rank == 1 and never.wait(60), timeout=3.0)
    never.set()


def test_abort_ends_all_with_its_status() -> None:
    def work(comm: Communicator) -> None:
        if comm.rank == 1:
            comm.Abort(3)
        comm.Barrier()

    with pytest.raises(SystemExit) as exit:
        run_ranks(3, work)
    assert exit.value.code == 3


@pytest.mark.parametrize(
    "call",
    [
        lambda comm: comm.Bcast(np.zeros(2 + comm.rank)),
        lambda comm: comm.Bcast(np.zeros(2), root=comm.rank),
        lambda comm: comm.Allreduce(np.zeros(2, np.float32 if comm.rank else np.float64)),
        lambda comm: comm.Allgatherv(np.zeros(1), np.zeros(2 + comm.rank), [1, 1 + comm.rank]),
        lambda comm: comm.Reduce_scatter(np.zeros(2), np.zeros(1), [2, 0]),
        lambda comm: comm.Alltoallv(np.zeros(3), [1, 1], np.zeros(2), [1, 1]),
        lambda comm: comm.Allreduce(np.zeros((4, 4))[:, 1]),
    ],
    ids=["size", "root", "type", "counts", "own count", "sum of counts", "not contiguous"],
)
def test_arguments_that_do_not_fit_are_a_mistake(call: object) -> None:
    with pytest.raises(AssertionError):
        run_ranks(2, call)  # type: ignore[arg-type]


def test_ranks_say_that_they_are_on_the_hosts_of_the_test_and_share_memory_there_only() -> None:
    def work(comm: Communicator) -> tuple[str, str, list[int], list[int]]:
        here = comm.Split_type_shared()
        window = here.Allocate_shared(1)
        window.Shared_query(here.rank)[0] = comm.rank
        window.Sync()
        here.Barrier()
        shared = [int(window.Shared_query(rank)[0]) for rank in range(here.size)]
        reverse = comm.Split(0, key=-comm.rank)
        return comm.host, reverse.host, here.allgather(comm.rank), shared

    hosts = ["a", "b", "a", "c", "b"]
    groups = {"a": [0, 2], "b": [1, 4], "c": [3]}
    assert run_ranks(5, work, hosts=hosts) == [(host, host, groups[host], groups[host]) for host in hosts]


def test_ranks_of_several_hosts_cannot_share_memory() -> None:
    with pytest.raises(AssertionError, match="on several hosts and cannot share memory: a, b"):
        run_ranks(2, lambda comm: comm.Allocate_shared(1), hosts=["a", "b"])


def test_a_wait_ends_when_another_rank_fails_in_every_thread_of_a_rank() -> None:
    raised = []

    def work(comm: Communicator) -> None:
        window = comm.Allocate_shared(1)
        mark = window.Shared_query(0)

        def wait() -> None:
            try:
                window.wait(lambda: bool(mark[0]))
            except AnotherRankError as error:
                raised.append((str(error), type(error.__cause__)))

        if comm.rank == 0:
            raise KeyError("zero")
        threads = [threading.Thread(target=wait, daemon=True) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)

    with pytest.raises(KeyError, match="zero"):
        run_ranks(2, work)
    assert raised == [("wait: another rank failed", KeyError)] * 2


def test_what_is_stored_without_a_sync_wakes_nobody() -> None:
    """With processes of one host it might be seen at once, or late."""

    def work(comm: Communicator) -> None:
        window = comm.Allocate_shared(1)
        part = window.Shared_query(0)
        looked = comm.Allocate_shared(1)
        mark = looked.Shared_query(1)

        def done() -> bool:
            seen = bool(part[0])
            mark[0] = 1
            looked.Sync()
            return seen

        if comm.rank == 0:
            looked.wait(lambda: bool(mark[0]))
            part[0] = 1
            raise KeyError("no Sync")
        with pytest.raises(AnotherRankError, match="wait: another rank failed"):
            window.wait(done)
        ended.append(comm.rank)

    ended: list[int] = []
    with pytest.raises(KeyError, match="no Sync"):
        run_ranks(2, work)
    assert ended == [1]
