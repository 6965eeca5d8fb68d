"""Memory that ranks share."""

from __future__ import annotations

import threading

import numpy as np
from numpy.testing import assert_array_equal

from bpt.engine.instructions import ExchangeGradients
from bpt.system.comm.base import Communicator
from bpt.system.comm.comm_thread import CommThread
from bpt.system.events.totals import Traffic
from tests.support.doubles.seen import Seen


def size_of(rank: int) -> int:
    """Bytes of a rank's part: 1000, 0, 1, 64."""
    return [1000, 0, 1, 64][rank]


def check_all_ranks_of_one_host_share_memory(comm: Communicator) -> None:
    here = comm.Split_type_shared()
    assert here.allgather(comm.rank) == list(range(comm.size))
    assert (here.rank, here.size, here.host) == (comm.rank, comm.size, comm.host)
    assert here.events is comm.events


def check_parts_have_their_own_sizes_and_are_zeros_at_the_start_of_a_line(comm: Communicator) -> None:
    window = comm.Allocate_shared(size_of(comm.rank))
    for rank in range(comm.size):
        part = window.Shared_query(rank)
        assert (part.dtype, part.shape) == (np.uint8, (size_of(rank),))
        assert not part.size or part.ctypes.data % 64 == 0
        assert not part.any()
    comm.Barrier()  # nobody frees what another looks at
    window.Free()


def check_a_window_of_nothing(comm: Communicator) -> None:
    window = comm.Allocate_shared(0)
    assert [window.Shared_query(rank).size for rank in range(comm.size)] == [0] * comm.size
    window.Sync()
    window.Free()


def check_what_one_writes_all_see(comm: Communicator) -> None:
    """Each rank writes into the part of each, where the others do not."""
    window = comm.Allocate_shared(4 * comm.size)
    parts = [window.Shared_query(rank).view(np.int32) for rank in range(comm.size)]
    for owner, part in enumerate(parts):
        part[comm.rank] = 100 * owner + comm.rank + 1
    window.Sync()
    comm.Barrier()
    window.Sync()
    expected = [100 * owner + 1 + np.arange(comm.size) for owner in range(comm.size)]
    assert_array_equal(parts, expected)
    comm.Barrier()
    window.Free()


def check_windows_are_apart(comm: Communicator) -> None:
    first, second = comm.Allocate_shared(8), comm.Allocate_shared(8)
    first.Shared_query(comm.rank)[...] = 1
    first.Sync()
    comm.Barrier()
    assert not any(second.Shared_query(rank).any() for rank in range(comm.size))
    comm.Barrier()
    first.Free()
    second.Shared_query(comm.rank)[...] = 2
    second.Sync()
    comm.Barrier()
    assert all((second.Shared_query(rank) == 2).all() for rank in range(comm.size))
    comm.Barrier()
    second.Free()


def check_wait_hands_a_token_round(comm: Communicator) -> None:
    """A rank may go on when the one before it has; what that has written it sees, whole."""
    rounds, left = 20, (comm.rank - 1) % comm.size
    window = comm.Allocate_shared(8 + 8 * 100)
    marks = [window.Shared_query(rank)[:8].view(np.int64) for rank in range(comm.size)]
    values = [window.Shared_query(rank)[8:].view(np.int64) for rank in range(comm.size)]
    for number in range(1, rounds + 1):
        if comm.size > 1:
            before = number if comm.rank else number - 1  # the first rank starts a round when the last one is through
            window.wait(lambda before=before: marks[left][0] >= before)  # type: ignore[misc]
            assert_array_equal(values[left], np.full(100, before * (left + 1)))
        values[comm.rank][...] = number * (comm.rank + 1)
        window.Sync()
        marks[comm.rank][0] = number
        window.Sync()
    window.wait(lambda: all(mark[0] == rounds for mark in marks))
    assert_array_equal(values, np.repeat(rounds * (1 + np.arange(comm.size)), 100).reshape(-1, 100))
    comm.Barrier()
    window.Free()


def check_wait_is_counted_with_its_thread_s_instruction(comm: Communicator) -> None:
    window = comm.Allocate_shared(1)
    parts = [window.Shared_query(rank) for rank in range(comm.size)]
    seen = Seen(comm)
    parts[comm.rank][...] = 1
    window.Sync()
    with comm.events.during(ExchangeGradients(0)):
        window.wait(lambda: all(part[0] for part in parts))
        window.wait(lambda: True)
    traffic = seen.calls()
    assert 0 < traffic["X0", "wait"].seconds < 60
    traffic["X0", "wait"].seconds = 0.0
    assert traffic == {("X0", "wait"): Traffic(2, 0, 0)}
    comm.Barrier()
    window.Free()


def check_threads_wait_for_threads_while_ranks_are_in_collectives(comm: Communicator) -> None:
    """Two threads of each rank wait for those of all ranks, fifty times, and the rank itself sums meanwhile."""
    if not comm.concurrent:
        return
    window = comm.Allocate_shared(2 * 64)
    marks = [window.Shared_query(rank).view(np.int64)[line : line + 1] for rank in range(comm.size) for line in (0, 8)]
    failures: list[BaseException] = []

    def work(mark: np.ndarray) -> None:
        try:
            for number in range(1, 51):
                mark[0] = number
                window.Sync()
                window.wait(lambda number=number: all(other[0] >= number for other in marks))  # type: ignore[misc]
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(marks[2 * comm.rank + which],), daemon=True) for which in (0, 1)]
    for thread in threads:
        thread.start()
    for _ in range(50):
        comm.Allreduce(value := np.array([float(comm.rank)]))
        assert value[0] == comm.size * (comm.size - 1) / 2
    for thread in threads:
        thread.join(60)
    assert failures == []
    assert [int(mark[0]) for mark in marks] == [50] * len(marks)
    comm.Barrier()
    window.Free()


def check_the_leaders_of_hosts_have_a_comm_thread(comm: Communicator) -> None:
    """Ranks 0 and 2 lead, as of two hosts; they sum, by threads, what the rank after them brings by a window."""
    leader = comm.rank - comm.rank % 2
    host = comm.Split(leader)
    leaders = comm.Split(0 if comm.rank == leader else 1 + comm.rank)
    window = host.Allocate_shared(64)
    own, total = (window.Shared_query(rank).view(np.int64) for rank in (host.rank, 0))
    others = window.Shared_query(host.size - 1).view(np.int64)
    comm_thread = CommThread(leaders)
    if host.rank:
        own[0] = comm.rank
        window.Sync()
        window.wait(lambda: total[1] != 0)
    else:

        def add() -> None:
            window.wait(lambda: host.size == 1 or others[0] != 0)
            leaders.Allreduce(value := np.array([comm.rank + (others[0] if host.size > 1 else 0)]))
            total[1] = value[0] + 1
            window.Sync()

        comm_thread.submit(add, ExchangeGradients(0))
        comm_thread.wait()
    assert total[1] == comm.size * (comm.size - 1) // 2 + 1
    comm_thread.close()
    comm.Barrier()
    window.Free()
