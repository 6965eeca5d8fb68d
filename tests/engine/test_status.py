"""The loss of all ranks, and what signals on any of them ask all to do."""

from __future__ import annotations

import math
import signal
from typing import Any

import pytest

from bpt.base.signals import SignalAction, SignalActions
from bpt.engine.status import Status
from bpt.system.comm.base import Communicator
from bpt.system.comm.comm_thread import CommThread
from tests.support.doubles.seen import Seen
from tests.support.doubles.thread_ranks import run_ranks


def signals_with(*numbers: signal.Signals, sighup: SignalAction = SignalAction.SNAPSHOT) -> SignalActions:
    """What a rank that got these signals has noted."""
    signals = SignalActions(sighup=sighup)
    for number in numbers:
        signals._note(number, None)
    return signals


def test_losses_are_summed() -> None:
    def run(comm: Communicator) -> list[tuple[float, SignalAction]]:
        comm_thread = CommThread(comm)
        status = Status(comm, comm_thread, None)
        found = []
        for iteration in range(3):
            status.start(10.0**comm.rank + iteration)
            comm_thread.wait()
            found.append((status.loss, status.action))
        return found

    ranks = [(111.0, SignalAction.NONE), (114.0, SignalAction.NONE), (117.0, SignalAction.NONE)]
    assert run_ranks(3, run) == [ranks] * 3
    assert run_ranks(1, run) == [[(1.0, SignalAction.NONE), (2.0, SignalAction.NONE), (3.0, SignalAction.NONE)]]


def test_a_loss_that_is_not_finite_is_so_everywhere() -> None:
    def run(comm: Communicator) -> float:
        comm_thread = CommThread(comm)
        status = Status(comm, comm_thread, None)
        status.start(float("nan") if comm.rank else 1.0)
        comm_thread.wait()
        return status.loss

    assert all(map(math.isnan, run_ranks(2, run)))


def actions(
    ranks: int, got: dict[int, list[signal.Signals]], calls: int, sighup: SignalAction = SignalAction.SNAPSHOT
) -> object:
    """What each rank is to do after each of ``calls`` iterations, if ranks have ``got`` signals before the first."""

    def run(comm: Communicator) -> list[SignalAction]:
        comm_thread = CommThread(comm)
        status = Status(comm, comm_thread, signals_with(*got.get(comm.rank, ()), sighup=sighup))
        found = []
        for _ in range(calls):
            status.start(0.0)
            comm_thread.wait()
            found.append(status.action)
        return found

    (found,) = {tuple(each) for each in run_ranks(ranks, run)}
    return list(found)


@pytest.mark.parametrize("rank", [0, 2])
def test_all_serve_what_one_rank_got(rank: int) -> None:
    assert actions(3, {rank: [signal.SIGHUP]}, 2) == [SignalAction.SNAPSHOT, SignalAction.NONE]
    assert actions(3, {rank: [signal.SIGINT]}, 2) == [SignalAction.STOP, SignalAction.NONE]


def test_signals_of_one_rank_are_served_one_by_one() -> None:
    assert actions(2, {1: [signal.SIGHUP, signal.SIGINT]}, 3) == [
        SignalAction.SNAPSHOT,
        SignalAction.STOP,
        SignalAction.NONE,
    ]


def test_a_stop_outdoes_a_snapshot() -> None:
    assert actions(2, {0: [signal.SIGHUP], 1: [signal.SIGINT]}, 1) == [SignalAction.STOP]


def test_the_same_signal_on_all_ranks_is_one() -> None:
    """As mpirun passes it on."""
    assert actions(3, {rank: [signal.SIGHUP] for rank in range(3)}, 2) == [SignalAction.SNAPSHOT, SignalAction.NONE]


def test_a_signal_without_effect() -> None:
    assert actions(2, {1: [signal.SIGHUP]}, 2, sighup=SignalAction.NONE) == [SignalAction.NONE] * 2


@pytest.mark.parametrize("ranks", [1, 3])
def test_agreement_by_itself(ranks: int) -> None:
    """As between the batches of a test; the one that got the signals is the last rank."""

    def run(comm: Communicator) -> tuple[list[SignalAction], bool]:
        got = (signal.SIGHUP, signal.SIGTERM) if comm.rank == comm.size - 1 else ()
        status = Status(comm, CommThread(comm), signals_with(*got))
        found = [status.agree()]
        assert not status.terminated
        found += [status.agree(), status.agree()]
        return found, status.terminated

    assert run_ranks(ranks, run) == [([SignalAction.SNAPSHOT, SignalAction.STOP, SignalAction.NONE], True)] * ranks


def test_only_sigterm_terminates() -> None:
    def run(comm: Communicator) -> tuple[bool, bool]:
        found = []
        for number in (signal.SIGINT, signal.SIGTERM):
            status = Status(comm, CommThread(comm), signals_with(*[number] * comm.rank))
            assert status.agree() is SignalAction.STOP
            found.append(status.terminated)
        return found[0], found[1]

    assert run_ranks(2, run) == [(False, True)] * 2


def test_a_rank_that_is_alone_serves_a_signal_of_the_update_at_once() -> None:
    def run(comm: Communicator) -> list[SignalAction]:
        comm_thread, signals = CommThread(comm), signals_with()
        status = Status(comm, comm_thread, signals)
        found: list[Any] = []
        for _ in range(2):
            status.start(1.0)
            comm_thread.wait()
            if not found:  # in the update
                signals._note(signal.SIGINT, None)
            found.append(status.action)
        return found

    assert run_ranks(1, run) == [[SignalAction.STOP, SignalAction.NONE]]
    assert run_ranks(2, run) == [[SignalAction.NONE, SignalAction.STOP]] * 2  # it has travelled with the next sum


def test_the_sum_is_counted_as_the_loss() -> None:
    def run(comm: Communicator) -> object:
        comm_thread = CommThread(comm)
        status = Status(comm, comm_thread, None)
        seen = Seen(comm)
        status.start(1.0)
        comm_thread.wait()
        return [(key, traffic.calls) for key, traffic in seen.calls().items()]

    assert run_ranks(2, run) == [[(("W", "Allreduce"), 1)]] * 2
