"""Hosts that do not reach each other."""

from __future__ import annotations

import threading
import time

import pytest

from bpt.base.errors import RunError
from bpt.system.comm import connectivity
from bpt.system.comm.base import Buffer, Communicator, Request
from bpt.system.comm.connectivity import check_connectivity, lost_rank_error
from bpt.system.comm.serial import SerialCommunicator
from tests.support.doubles.thread_ranks import ThreadCommunicator, run_ranks

ONE, TWO = "rank 1 (host a)", "rank 2 (host b)"
HOSTS = ("a", "a", "b", "c", "c")


class Never:
    """A message that does not get through."""

    def Wait(self) -> None:  # noqa: N802
        raise AssertionError("this would wait for ever")

    def Test(self) -> bool:  # noqa: N802
        return False


class Polls(threading.local):
    """A clock of each thread that counts how often it looks: a busy machine slows all ranks down alike."""

    seconds = 0.0

    def monotonic(self) -> float:
        """Half a millisecond later each time."""
        self.seconds += 0.0005
        return self.seconds

    sleep = staticmethod(time.sleep)


def call(monkeypatch: pytest.MonkeyPatch, dead: set[tuple[int, int]]) -> list[tuple[str, ...] | str]:
    """What the check tells each rank, or its error, where no message goes from one to the other of ``dead``."""
    monkeypatch.setattr(ThreadCommunicator, "host", property(lambda comm: HOSTS[comm.rank]))
    monkeypatch.setattr(connectivity, "time", Polls())
    send, receive = ThreadCommunicator._Isend, ThreadCommunicator._Irecv

    def isend(comm: ThreadCommunicator, buffer: Buffer, dest: int, tag: int) -> Request:
        return Never() if (comm.rank, dest) in dead else send(comm, buffer, dest, tag)

    def irecv(comm: ThreadCommunicator, buffer: Buffer, source: int, tag: int) -> Request:
        return Never() if (source, comm.rank) in dead else receive(comm, buffer, source, tag)

    monkeypatch.setattr(ThreadCommunicator, "_Isend", isend)
    monkeypatch.setattr(ThreadCommunicator, "_Irecv", irecv)

    def one(world: Communicator) -> tuple[str, ...] | str:
        try:
            return check_connectivity(world, seconds=0.2)
        except RunError as error:
            return str(error)

    return run_ranks(len(HOSTS), one, timeout=120)


def test_all_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    assert call(monkeypatch, set()) == [HOSTS] * 5
    alone = SerialCommunicator()
    assert check_connectivity(alone) == (alone.host,)


def test_ranks_that_rank_0_does_not_hear(monkeypatch: pytest.MonkeyPatch) -> None:
    first, *others = call(monkeypatch, {(3, 0), (4, 0)})
    assert isinstance(first, str)
    assert first.startswith("ranks 3, 4: no message reaches rank 0 (host a) in 0.2 s; open all ports")
    assert "btl_tcp_if_include" in first
    assert all(isinstance(other, str) for other in others)


def test_a_rank_that_does_not_hear_rank_0(monkeypatch: pytest.MonkeyPatch) -> None:
    results = call(monkeypatch, {(0, 2)})
    assert str(results[0]).startswith("rank 2 (host b): no longer in touch with rank 0 (host a); ")
    assert str(results[2]).startswith("rank 0 does not answer rank 2 (host b); ")


@pytest.mark.parametrize("dead", [{(2, 3)}, {(3, 2)}, {(2, 3), (3, 2)}])
def test_two_hosts_that_do_not_reach_each_other(monkeypatch: pytest.MonkeyPatch, dead: set[tuple[int, int]]) -> None:
    first, *others = call(monkeypatch, dead)
    assert str(first).startswith("no message passes between the hosts b and c, though all reach host a; ")
    assert others == ["the hosts do not reach each other; rank 0 knows which"] * 4


@pytest.mark.parametrize(
    ("ranks", "names", "start"),
    [
        ((), (), "another rank is gone (noticed in Barrier): it was killed"),
        ((1,), (ONE,), f"{ONE} is gone (noticed in Barrier): it was killed"),
        ((1, 2), (ONE, TWO), f"{ONE} and {TWO} are gone (noticed in Barrier): they were killed"),
    ],
)
def test_an_error_names_each_lost_rank(ranks: tuple[int, ...], names: tuple[str, ...], start: str) -> None:
    error = lost_rank_error("Barrier", ranks, names)
    assert error.ranks == ranks
    assert str(error).startswith(start)
