"""Ranks that are lost: what the others' calls make of it. Here ranks are threads; see also tests/mpi/test_loss.py."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from bpt.base.errors import LostRankError
from bpt.system.comm.base import Communicator
from tests.support.doubles.thread_ranks import Killed, run_ranks

Call = Callable[[Communicator], object]

HOST = socket.gethostname()


def loss_in(call: Callable[[], object]) -> LostRankError:
    with pytest.raises(LostRankError) as caught:
        call()
    return caught.value


def test_the_others_results_come_in_order_of_rank() -> None:
    def work(comm: Communicator) -> int:
        if comm.rank == 1:
            raise Killed
        return comm.rank

    assert run_ranks(4, work) == [0, 2, 3]


def test_requests_with_the_dead_rank_fail_again_and_again_and_all_others_go_on() -> None:
    """Rank 2 dies between two messages; rank 0 polls both workers."""

    def work(comm: Communicator) -> Any:
        if comm.rank == 2:
            comm.Send(np.array([7.0]), 0)
            raise Killed
        if comm.rank == 1:
            for number in range(5):
                comm.Send(np.array([float(number)]), 0)
            return None
        buffers = {1: np.zeros(1), 2: np.zeros(1)}
        requests = {rank: comm.Irecv(buffers[rank], rank) for rank in buffers}
        sending = comm.Isend(np.zeros(9), 2)
        seen: dict[int, list[float]] = {1: [], 2: []}
        errors: list[LostRankError] = []
        while len(seen[1]) < 5 or not errors:
            for rank, request in list(requests.items()):
                try:
                    if request.Test():
                        seen[rank].append(float(buffers[rank][0]))
                        requests[rank] = comm.Irecv(buffers[rank], rank)
                except LostRankError as error:
                    assert rank == 2
                    errors.append(error)
        calls = (requests[2].Test, requests[2].Wait, sending.Test, sending.Wait, comm.Isend(np.zeros(1), 2).Wait)
        assert [loss_in(call).ranks for call in (*calls, comm.Irecv(np.zeros(1), 2).Test)] == [(2,)] * 6
        return seen, str(errors[0])

    (seen, message), _ = run_ranks(3, work)
    assert seen == {1: [0, 1, 2, 3, 4], 2: [7]}
    assert message.startswith(f"rank 2 (host {HOST}) is gone (noticed in Recv from 2): it was killed")


def test_what_arrived_before_the_death_has_arrived_and_what_nobody_had_asked_for_is_lost() -> None:
    def work(comm: Communicator) -> None:
        if comm.rank == 1:
            comm.Recv(np.zeros(1), 0)  # rank 0 is ready for the first
            comm.Isend(np.array([1.0]), 0)
            comm.Isend(np.array([2.0]), 0)
            raise Killed
        first, second = np.zeros(1), np.zeros(1)
        request = comm.Irecv(first, 1)
        comm.Send(np.zeros(1), 1)
        loss_in(lambda: comm.Recv(np.zeros(1), 1, tag=9))  # it is dead by now
        request.Wait()
        assert first[0] == 1
        loss_in(lambda: comm.Recv(second, 1))
        assert second[0] == 0

    run_ranks(2, work)


@pytest.mark.parametrize(
    "call",
    [
        Communicator.Barrier,
        lambda comm: comm.Bcast(np.zeros(1)),
        lambda comm: comm.Allreduce(np.zeros(1)),
        lambda comm: comm.allgather(0),
        lambda comm: comm.bcast(0),
        lambda comm: comm.Split(0),
        lambda comm: comm.Allocate_shared(1),
    ],
    ids=["Barrier", "Bcast", "Allreduce", "allgather", "bcast", "Split", "Allocate_shared"],
)
def test_collectives_fail_for_those_that_wait_and_those_that_come_later(call: Call) -> None:
    def work(comm: Communicator) -> None:
        if comm.rank == 0:
            raise Killed
        assert loss_in(lambda: call(comm)).ranks == (0,)
        assert loss_in(lambda: call(comm)).ranks == (0,)

    run_ranks(3, work)


def test_ranks_are_those_of_the_communicator_while_the_message_has_those_of_all() -> None:
    def work(comm: Communicator) -> None:
        part = comm.Split(comm.rank % 2, key=-comm.rank)  # of ranks 3 and 1
        if comm.rank == 3:
            raise Killed
        if comm.rank == 1:
            error = loss_in(part.Barrier)
            assert error.ranks == (0,)
            assert "rank 3 (host d) is gone (noticed in Barrier)" in str(error)
        else:
            part.Barrier()  # of ranks 2 and 0, which has lost nobody

    run_ranks(4, work, hosts=["a", "b", "c", "d"])


def test_a_wait_at_a_window_ends_unless_the_dead_rank_had_done_its_part() -> None:
    def work(comm: Communicator) -> None:
        window = comm.Allocate_shared(1)
        mark = window.Shared_query(1)
        if comm.rank == 1:
            mark[0] = 7
            window.Sync()
            raise Killed
        window.wait(lambda: bool(mark[0] == 7))
        assert loss_in(lambda: window.wait(lambda: bool(mark[0] == 8))).ranks == (1,)

    run_ranks(3, work)


def test_survivors_shrink_from_wherever_they_are_and_nothing_but_that_and_agree_works_afterwards() -> None:
    def work(comm: Communicator) -> tuple[int, list[int], float, int, int]:
        if comm.rank in {0, 3}:
            raise Killed
        if comm.rank == 1:  # waits for one that lives, and has gone to Shrink
            loss_in(lambda: comm.Recv(np.zeros(1), 2))
        group = comm.Shrink()
        loss_in(lambda: comm.Recv(np.zeros(1), 2))
        loss_in(comm.Barrier)
        group.Allreduce(total := np.array([float(comm.rank)]))
        again = comm.Shrink()
        again.Barrier()
        return group.rank, group.allgather(comm.rank), float(total[0]), comm.Agree(0b110 | comm.rank), again.rank

    assert run_ranks(5, work) == [(rank, [1, 2, 4], 7, 0b110, rank) for rank in range(3)]


def test_agree_does_not_mind_who_is_lost_before_or_meanwhile() -> None:
    def work(comm: Communicator) -> list[int]:
        if comm.rank == 1:
            raise Killed
        agreed = [comm.Agree(0b111)]
        if comm.rank == 2:
            raise Killed
        agreed.append(comm.Agree(0b101 if comm.rank else 0b110))
        return agreed

    assert run_ranks(4, work) == [[0b111, 0b100]] * 2


def test_ranks_are_told_of_fault_tolerance_if_the_test_wants_it() -> None:
    def work(comm: Communicator) -> str:
        return comm.describe()["fault tolerance"]

    assert run_ranks(2, work) == ["off", "off"]
    assert run_ranks(2, work, tolerant=True) == ["on", "on"]
