"""Heartbeat: detects ranks that stand still, which are neither lost nor at work.

If a process is stopped, or its host or link fails silently, all others would wait in MPI for ever. So each rank has a
thread that sends beats to some others, whatever its main thread does, with its own position and its table of all ranks
(see ``rank_status``). A long iteration, a slow disk or a compiler does not stop the beats; SIGSTOP, a dead host and a
dead link do. The heartbeat also reports ranks that beat without progress: a rank that waits for its disk for long, and
ranks that all wait for each other.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import ClassVar

import numpy as np

from bpt.base.errors import BptError, LostRankError
from bpt.system.comm import proxy
from bpt.system.comm.base import Buffer, Communicator, Request
from bpt.system.comm.connectivity import name_of
from bpt.system.comm.processes import identity
from bpt.system.events.bus import EventBus
from bpt.system.events.flight_recorder import Position
from bpt.train.runtime.flight_log import FlightLog
from bpt.train.runtime.rank_status import RankStatusTable

_BEATS = 10  # beats in the timeout after which a rank counts as standing still
_FASTEST, _SLOWEST = 0.05, 1.0  # limits of the seconds between two beats
_WATCHED = 3  # number of preceding ranks that a rank watches, so that several may stand still at once
_OF_HOST = 2  # number of preceding ranks of its own host that it also watches, and may end
_LATER = 0.25  # timeouts by which each further watcher of a rank waits longer than the nearer ones
_ELSEWHERE = 0.5  # timeouts by which watchers on other hosts wait longer than those on the rank's own host
_MAKING_READY = 12  # timeouts that computing may take while kernels are compiled and tried out
# Seconds that a rank has waited when SIGTERM comes after a loss: the launcher sends it a quarter of a second after the
# loss, and SIGKILL another quarter later.
_AFTER_SIGTERM = 0.2
# The same under a proxy that delays SIGKILL, where ranks wait for each other while they stop properly.
_WITH_PROXY = 10.0

SPARE = -1  # the lane of spare ranks

End = Callable[[str, "int | None"], object]


class _Neighbour:
    """A rank that is watched, and the time of its last beat."""

    def __init__(
        self, comm: Communicator, rank: int, standings: RankStatusTable, process: int | None, timeout: float
    ) -> None:
        self.name = standings.names[rank]
        self.process = process
        self.timeout = timeout
        self.last = time.monotonic()
        self.watched = True  # False: the rank has ended, is lost, or was reported
        self.rank = rank
        self._comm = comm
        self._standings = standings
        self._heard: Buffer = np.zeros(standings.nbytes, np.uint8)
        self._hearing: Request = comm.Irecv(self._heard, rank)

    def listen(self, since: float) -> None:
        """Receive the beats that have arrived in the last ``since`` seconds."""
        try:
            while self.watched and self._hearing.Test():
                self._take(since)
        except LostRankError:  # others notice that as well
            self._standings.leave(self.rank, lost=True)
            self.watched = False

    def wait(self) -> None:
        """Wait for the rank's last beat."""
        with suppress(LostRankError):
            while self.watched:
                self._hearing.Wait()
                self._take(0.0)

    def _take(self, since: float) -> None:
        self.watched = self._standings.take(self._heard, self.rank, since)
        self.last = time.monotonic()
        if self.watched:
            self._hearing = self._comm.Irecv(self._heard, self.rank)


class Heartbeat:
    """Sends beats to some ranks and listens to others, until it is closed.

    Args:
        world: all ranks of the run, at least two; several threads may be in calls at once.
        timeout: seconds after which a rank that is silent, or makes no progress, is reported.
        log: the log of this rank's flight recorder, which gets the positions of all ranks.
        lane: the stage, or SPARE; ranks of one lane begin the same instructions.
        settled: function that returns whether all compilation and all trials are finished.
        heals: whether the others continue when a rank is lost.
        end: function that gets the message about a rank to end, and its process if that is on this host.
        warn: function that gets the message about this rank.
    """

    def __init__(
        self,
        world: Communicator,
        timeout: float,
        log: FlightLog,
        *,
        lane: int = 0,
        settled: Callable[[], bool] = lambda: True,
        heals: bool = False,
        end: End | None = None,
        warn: Callable[[str], object] | None = None,
    ) -> None:
        self._comm = comm = world.Dup()
        world.forget(comm)  # a loss must not revoke it, because it watches the ranks that heal
        comm.events = EventBus(comm.rank)  # beats are not events of the run
        self._timeout = timeout
        self._period = min(max(timeout / _BEATS, _FASTEST), _SLOWEST)
        self._log = log
        self._settled = settled
        self._heals = heals
        self._end = end or end_it
        self._warn = warn or (lambda message: print_now(f"warning: {message}"))
        self._named = 0.0, 0.0  # the wait for which this rank was reported, and its seconds
        self._first = -1  # the first iteration
        self._stood: float | None = None  # the time since which no rank makes progress
        self._reported_spares: set[int] = set()  # lost spare ranks that were reported
        facts = comm.allgather((comm.host, identity(), lane))
        hosts = [host for host, *_ in facts]
        names = [name_of(rank, host) for rank, host in zip(comm.world_ranks, hosts, strict=True)]
        self._standings = RankStatusTable(names, comm.world_ranks, comm.rank, [of for *_, of in facts])
        log.standings = self._standings
        self._neighbours = []
        for rank, patience in watched_by(hosts, comm.rank).items():
            process, space = facts[rank][1]
            own = process if (hosts[rank], space) == (comm.host, identity()[1]) else None
            self._neighbours.append(_Neighbour(comm, rank, self._standings, own, timeout * patience))
        self._next = watchers_of(hosts, comm.rank)
        self._sending: dict[int, tuple[Request, Buffer]] = {}
        self._alarm = _Alarm()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self._thread.start()

    def close(self, failed: bool = False) -> None:
        """Stop sending; a collective call, unless something ``failed``."""
        self._alarm.close()
        if not failed:
            self._thread.join()
            self._be_heard()
            self._standings.leave(self._comm.rank)
            self._say()
            for neighbour in self._neighbours:
                neighbour.wait()
            self._be_heard()
            with suppress(LostRankError):  # a lost spare rank is no error here
                self._comm.Free()

    def _be_heard(self) -> None:
        """Wait until all live ranks have received the last beat."""
        for request, _ in self._sending.values():
            with suppress(LostRankError):
                request.Wait()

    def _run(self) -> None:
        woke = time.monotonic()
        while self._alarm.sleep(self._period if self._sending else 0.0):
            try:
                position = self._log.flight.position
                self._standings.put(position)
                self._say()
                now = time.monotonic()
                for neighbour in self._neighbours:
                    if now - woke > self._timeout / 2:  # this rank itself stood still
                        neighbour.last = now
                    neighbour.listen(now - woke)
                    silence = now - neighbour.last
                    if neighbour.watched and silence > neighbour.timeout:
                        neighbour.watched = False
                        self._finish(
                            f"{neighbour.name} stands still: nothing was heard of it for {silence:.3g} s; when it was "
                            f"last heard of, it was at {self._standings.words(neighbour.rank)}",
                            neighbour.process,
                        )
                self._look_at_itself(position)
                self._look_at_all(now)
                self._look_for_spares()
                woke = now
            except BptError:
                break
        self._alarm.end()

    def _look_at_itself(self, position: Position) -> None:
        """Report this rank if it stands still without waiting for others; write the log if SIGTERM ends a wait."""
        begun, named = self._named
        if position.begun != begun:
            begun, named = self._named = position.begun, 0.0
        self._first = position.iteration if self._first < 0 else self._first
        is_ready = position.iteration > self._first + 1 and self._settled()
        patience = self._timeout * (1 if position.disk or is_ready else _MAKING_READY)
        if begun and not position.waits and position.seconds > max(patience, named + self._timeout):
            self._named = begun, position.seconds
            self._warn(
                f"{self._standings.names[self._comm.rank]} has been at {position.words} for {position.seconds:.3g} s; "
                "the others wait for it"
            )
        if self._alarm.terminated and position.waits and position.seconds > _patience_after_sigterm():
            self._alarm.terminated = False
            self._log.write("SIGTERM came while it waited", announce=self._standings.first == self._comm.rank)

    def _look_at_all(self, now: float) -> None:
        """End this rank, or the job, if all ranks wait for each other."""
        standings, own = self._standings, self._comm.rank
        if not standings.all_wait(self._timeout):
            self._stood = None
            return
        self._stood = self._stood or now
        pair = standings.pair
        if pair and self._heals and now - self._stood < self._timeout:
            one, other = pair
            if own == other:
                names = standings.names
                self._finish(
                    f"{names[other]} and {names[one]} have waited for each other for {self._timeout:.3g} s: no message "
                    f"gets through between them; so that the others can continue, {names[other]} leaves",
                    os.getpid(),
                )
        elif own == standings.first:
            found = "; ".join(standings.findings()[:3])
            self._finish(f"all ranks have waited for each other for {self._timeout:.3g} s: {found}", None)

    def _look_for_spares(self) -> None:
        """Report lost spare ranks, which no other rank waits for."""
        standings = self._standings
        for rank in standings.lost_spares if standings.first_not_lost == self._comm.rank else ():
            if rank not in self._reported_spares:
                self._reported_spares.add(rank)
                self._warn(f"{standings.names[rank]}, which was spare, is lost; the run continues")

    def _finish(self, message: str, process: int | None) -> None:
        self._log.write(message)
        self._end(message, process)

    def _say(self) -> None:
        """Send a beat to each watcher that has received the last one; do not wait for the others."""
        beat = self._standings.message()
        for rank in self._next:
            try:
                if rank not in self._sending or self._sending[rank][0].Test():
                    self._sending[rank] = self._comm.Isend(beat, rank), beat
            except LostRankError:
                continue


def _patience_after_sigterm() -> float:
    """Return the seconds that a rank may wait after SIGTERM before it writes its flight recorder's content."""
    proxied = proxy.own_proxy()
    return _WITH_PROXY if proxied and not proxied.lost_ranks else _AFTER_SIGTERM


def watched_by(hosts: Sequence[str], watcher: int) -> dict[int, float]:
    """Return the ranks that a rank watches, and the number of timeouts for which each may be silent.

    It watches the preceding ranks, and those of its own host. Ranks on the host of a silent rank act first, because
    they can end it.
    """
    found: dict[int, float] = {}
    for distance, rank in _near(hosts, watcher, -1):
        has_mates = hosts[rank] != hosts[watcher] and hosts.count(hosts[rank]) > 1
        patience = 1 + _LATER * (distance - 1) + _ELSEWHERE * has_mates
        found[rank] = min(patience, found.get(rank, patience))
    return found


def watchers_of(hosts: Sequence[str], watched: int) -> list[int]:
    """Return the ranks that watch a rank, in order."""
    return sorted({rank for _, rank in _near(hosts, watched, 1)})


def _near(hosts: Sequence[str], rank: int, step: int) -> Iterator[tuple[int, int]]:
    """Yield the distance and the number of ranks after a rank (step 1) or before it (-1), also on its own host only."""
    mates = [other for other, host in enumerate(hosts) if host == hosts[rank]]
    for ring, most in ((range(len(hosts)), _WATCHED), (mates, _OF_HOST)):
        place = ring.index(rank)
        for distance in range(1, min(most, len(ring) - 1) + 1):
            yield distance, ring[(place + step * distance) % len(ring)]


class _Alarm:
    """A timer that wakes the thread after a time, at the end of the run, or when SIGTERM comes.

    The training thread handles a signal only after its call to MPI returns, which may be never.

    Attributes:
        terminated: whether SIGTERM has come; if a process has several runs, only the newest one gets it.
    """

    _wakeup_files: ClassVar[list[int]] = []  # file numbers: the one before the first run, then one for each run

    def __init__(self) -> None:
        self.terminated = False
        self._wakes, self._woken = socket.socketpair()
        self._wakes.setblocking(False)
        self._signals = threading.current_thread() is threading.main_thread()
        if self._signals:
            before = signal.set_wakeup_fd(self._wakes.fileno(), warn_on_full_buffer=False)
            self._wakeup_files[:] = [*(self._wakeup_files or [before]), self._wakes.fileno()]

    def sleep(self, seconds: float) -> bool:
        """Wait for at most ``seconds``; return whether the thread continues."""
        seconds = min(seconds, _AFTER_SIGTERM / 4) if self.terminated else seconds
        if not select.select([self._woken], [], [], seconds)[0]:
            return True
        word = self._woken.recv(64)
        self.terminated |= signal.SIGTERM in word
        return bool(word) and 0 not in word

    def close(self) -> None:
        """End the thread's loop; called by the thread that created the alarm."""
        if self._signals:
            self._signals = False
            self._wakeup_files.remove(self._wakes.fileno())  # runs may end in any order
            signal.set_wakeup_fd(self._wakeup_files[-1])
            if len(self._wakeup_files) == 1:
                self._wakeup_files.clear()
        with suppress(OSError):  # the thread has ended already
            self._wakes.send(bytes(1))
        self._wakes.close()

    def end(self) -> None:
        """Free the alarm; called by its thread at the end."""
        self._woken.close()


def print_now(message: str) -> None:
    """Print a message by one write, so that the lines of several ranks do not mix."""
    sys.stderr.write(f"{message}\n")
    sys.stderr.flush()


def end_it(message: str, process: int | None) -> None:
    """Report the end, and end the rank, or the job if the rank is out of reach.

    A process of this host is killed: then the rank is lost, and the others can continue if the run heals. A silent rank
    on another host cannot be excluded, so the launcher is asked to end the job.
    """
    target, words = process or proxy.launcher(), f"error: {message}; {'it is killed' if process else 'the job ends'}"
    try:
        os.kill(target, 0)
        print_now(words)
        os.kill(target, signal.SIGKILL if process else signal.SIGTERM)
    except ProcessLookupError:  # it has ended, which the launcher reports
        return
    except OSError:  # it belongs to another user, such as a cluster's daemon, which ends the job if this rank exits
        print_now(words)
        os._exit(1)
