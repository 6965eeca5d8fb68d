"""A rank that falls silent is named, with what it did; ranks that are busy are not."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

from bpt.engine.instructions import ExchangeGradients, Forward
from bpt.system.comm.base import Communicator
from bpt.system.events.event import Activity
from bpt.system.events.flight_recorder import FlightRecorder, Position
from bpt.train.runtime.flight_log import FlightLog
from bpt.train.runtime.heartbeat import SPARE, Heartbeat, _Alarm, end_it, watched_by, watchers_of
from tests.support.doubles.thread_ranks import Killed, run_ranks
from tests.support.marks import slow

TIMEOUT = 3.0


def log_of(comm: Communicator, flight: FlightRecorder | None = None) -> FlightLog:
    """In the current folder."""
    flight = flight or comm.events.flight
    assert flight is not None
    return FlightLog(comm, "small", flight)


class Silenced(FlightRecorder):
    """Stands still from the third time on that it is asked, until it may go on."""

    def __init__(self, named: threading.Event) -> None:
        super().__init__()
        self.asked = 0
        self._named = named

    @property
    def position(self) -> Position:
        self.asked += 1
        if self.asked > 2:
            self._named.wait(60)
        return Position(3, 1, "X1 (conv)", False, -1, 0.0, 1.0, False)


@pytest.mark.parametrize("hosts", [slow(["a", "a", "a"]), ["a", "b", "b"]])
def test_a_silent_rank_is_named(
    hosts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rank 1 says what it does, and then nothing any more: its thread stands still, as after SIGSTOP.

    Whoever is on its host is the first to find it, and can end it.
    """
    monkeypatch.chdir(tmp_path)
    named = threading.Event()
    found: list[tuple[str, int | None]] = []

    def run(comm: Communicator) -> None:
        def end(message: str, process: int | None) -> None:
            found.append((message, process))
            named.set()

        flight = Silenced(named) if comm.rank == 1 else None
        beat = Heartbeat(comm, TIMEOUT, log_of(comm, flight), end=end)
        assert named.wait(60)
        beat.close(failed=True)

    run_ranks(3, run, timeout=120, hosts=hosts)
    (message, process), *_ = found
    assert message.startswith(f"rank 1 (host {hosts[1]}) stands still: nothing was heard of it for ")
    assert message.endswith(" s; when it was last heard of, it was at X1 (conv)")
    assert process is not None
    (path, *_) = Path().glob("small_flight_recorder_rank_*.txt")
    assert f"Written because: {message}" in path.read_text()
    assert f"wrote {path}" in capsys.readouterr().err


def test_a_spare_that_is_lost_is_told_by_the_first_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for it. One that leaves at the end is none."""
    monkeypatch.chdir(tmp_path)
    told: list[tuple[int, str]] = []
    heard = threading.Event()

    def run(comm: Communicator) -> None:
        def warn(message: str) -> None:
            told.append((comm.rank, message))
            heard.set()

        beat = Heartbeat(comm.Dup(), TIMEOUT, log_of(comm), lane=SPARE if comm.rank > 1 else 0, warn=warn)
        if comm.rank == 3:
            beat._alarm.close()
            raise Killed
        assert heard.wait(60)
        beat.close()

    run_ranks(4, run, timeout=120, hosts=["a", "b", "c", "d"], tolerant=True)
    assert told == [(0, "rank 3 (host d), which was spare, is lost; the run continues")]


def test_who_watches_whom() -> None:
    """Three ranks before each, and two of its host; whoever is elsewhere gives these time."""
    hosts = ["a", "a", "a", "b", "b", "c"]
    assert watched_by(hosts, 0) == {5: 1.0, 4: 1.75, 3: 2.0, 2: 1.0, 1: 1.25}
    assert watched_by(hosts, 1) == {0: 1.0, 5: 1.25, 4: 2.0, 2: 1.25}
    assert watched_by(hosts, 3) == {2: 1.5, 1: 1.75, 0: 2.0, 4: 1.0}
    assert watched_by(["a", "b"], 0) == {1: 1.0}
    for rank in range(6):  # somebody of its own host, before all others, if there is one
        least = {
            watcher: watched_by(hosts, watcher)[rank] for watcher in range(6) if rank in watched_by(hosts, watcher)
        }
        assert len(least) >= 3
        assert watchers_of(hosts, rank) == list(least)
        first = min(least, key=lambda watcher: least[watcher])
        assert hosts[first] == hosts[rank] or hosts.count(hosts[rank]) == 1


def test_a_rank_finds_its_watchers_without_asking_what_all_others_watch() -> None:
    """It compares each host once."""
    compared = 0

    class Host(str):
        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return str.__eq__(self, other)

    for ranks in (64, 256):
        compared = 0
        assert watchers_of([Host(rank // 4) for rank in range(ranks)], 6) == [4, 7, 8, 9]
        assert compared == ranks


def test_a_rank_that_is_at_its_disk_for_long_is_named_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 1 reads, and rank 0 waits for it: only the one that reads is named."""
    monkeypatch.chdir(tmp_path)
    read = threading.Event()
    told: list[tuple[int, str]] = []

    def run(comm: Communicator) -> None:
        assert comm.events.flight is not None
        comm.events.flight.begin_iteration(0, lambda: None)

        def warn(message: str) -> None:
            told.append((comm.rank, message))
            if len(told) == 3:
                read.set()

        beat = Heartbeat(comm.Dup(), 0.5, log_of(comm), end=lambda *found: None, warn=warn)
        with comm.events.during(Forward(0)):
            if comm.rank == 1:
                with comm.events.during(Activity.WAIT_FOR_DATA):
                    assert read.wait(60)
        with comm.events.during(ExchangeGradients(0)):
            comm.Barrier()
        beat.close()

    run_ranks(2, run, timeout=120)
    assert [rank for rank, _ in told[:3]] == [1, 1, 1]
    assert "has been at wait for data in iteration 0 for " in told[0][1]
    assert told[0][1].endswith(" s; the others wait for it")


def test_a_long_first_iteration_is_no_alarm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels are compiled in it. Later the same is one."""
    monkeypatch.chdir(tmp_path)
    told: list[str] = []
    named, passed = threading.Event(), threading.Event()

    class At(FlightRecorder):
        """Has been in an iteration for ten times the timeout, and then for as long in another."""

        def __init__(self) -> None:
            super().__init__()
            self.asked = 0

        @property
        def position(self) -> Position:
            self.asked += 1
            if self.asked == 20:
                passed.set()
            iteration = 0 if self.asked < 20 else 2
            return Position(iteration, 1, f"F0 in iteration {iteration}", False, -1, 10.0, 1.0 + iteration, False)

    def run(comm: Communicator) -> None:
        def warn(message: str) -> None:
            told.append(message)
            named.set()

        beat = Heartbeat(comm, 1.0, log_of(comm, At() if comm.rank else None), end=lambda *found: None, warn=warn)
        assert named.wait(60)
        beat.close(failed=True)

    run_ranks(2, run, timeout=120)
    assert passed.is_set()
    assert all("has been at F0 in iteration 2 for 10 s" in message for message in told)


@pytest.mark.parametrize("heals", [False, True])
def test_ranks_that_all_wait_for_each_other_are_told_who_for_whom(
    heals: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of three, two wait for a message of each other: where the others can go on, one of the two leaves."""
    monkeypatch.chdir(tmp_path)
    ended = threading.Event()
    found: list[tuple[int, str, int | None]] = []

    def run(comm: Communicator) -> None:
        assert comm.events.flight is not None
        comm.events.flight.begin_iteration(4, lambda: None)

        def end(message: str, process: int | None) -> None:
            found.append((comm.rank, message, process))
            ended.set()

        beat = Heartbeat(comm, 1.0, log_of(comm), heals=heals, end=end)
        peer = {0: 2, 1: None, 2: 0}[comm.rank]
        with comm.events.during(ExchangeGradients(1)), comm.events.call("Recv", 0, 8, peer=peer):
            assert ended.wait(60)
        beat.close(failed=True)

    run_ranks(3, run, timeout=120)
    rank, message, process = found[0]
    if heals:
        assert (rank, process) == (2, os.getpid())
        assert "have waited for each other for 1 s: no message gets through between them" in message
    else:
        assert (rank, process) == (0, None)
        assert message.startswith("all ranks have waited for each other for 1 s: rank 0 (host ")
        assert "waits for rank 2 (host " in message
        assert "in Recv with rank 2, X1 in iteration 4" in message


def test_sigterm_wakes_it() -> None:
    """Though the main thread may be in a call that does not end."""
    before = signal.signal(signal.SIGTERM, lambda number, frame: None)
    alarm = _Alarm()
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        assert alarm.sleep(60)
        assert alarm.terminated
        alarm.close()
        assert not alarm.sleep(60)
    finally:
        alarm.end()
        signal.signal(signal.SIGTERM, before)
    assert signal.set_wakeup_fd(-1) == -1


def test_runs_of_a_process_end_in_any_order() -> None:
    """Signals are told to those that are left, and at last to whom they were told before."""
    before = signal.signal(signal.SIGTERM, lambda number, frame: None)
    first, second, third = alarms = [_Alarm() for _ in range(3)]
    try:
        for alarm in (first, third):
            alarm.close()
        os.kill(os.getpid(), signal.SIGTERM)
        assert second.sleep(60)
        assert second.terminated
        second.close()
    finally:
        for alarm in alarms:
            alarm.end()
        signal.signal(signal.SIGTERM, before)
    assert signal.set_wakeup_fd(-1) == -1


def test_a_process_that_has_ended_is_not_told_of(capsys: pytest.CaptureFixture[str]) -> None:
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    end_it("rank 1 stands still", child)
    assert not capsys.readouterr().err


def test_it_ends_with_the_run() -> None:
    """Nothing stays under way, and the communicator is given back."""

    def run(comm: Communicator) -> None:
        for _ in range(3):
            Heartbeat(comm, 300.0, log_of(comm)).close()

    run_ranks(3, run)
    assert not [thread for thread in threading.enumerate() if thread.name == "heartbeat"]


def test_a_rank_that_ends_later() -> None:
    """Its neighbours' last beats came while it was at work: nobody waits for them again."""
    heard = threading.Event()

    def run(comm: Communicator) -> None:
        beat = Heartbeat(comm, 1.0, log_of(comm))  # a beat every tenth of a second
        if comm.rank == 0:
            assert heard.wait(60)
            while any(neighbour.watched for neighbour in beat._neighbours):
                heard.wait(0)
        else:
            heard.set()
        beat.close()

    run_ranks(3, run)
