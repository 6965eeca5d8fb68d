"""Heartbeat: notices ranks that stand still, which nobody would ever be told of: they are neither lost nor at work.

A process that is stopped, or whose host or link is dead without a word, leaves all others waiting in MPI for ever. So
each rank has a thread that sends the next ones a sign of life, whatever its main thread does, with the instruction that
this is at. A long iteration, a slow disk or a compiler does not silence it; SIGSTOP, a dead host and a dead link do.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable

import numpy as np

from bpt.comm.base import Buffer, Communicator, Request
from bpt.comm.connectivity import name_of
from bpt.comm.processes import identity
from bpt.errors import BptError, LostRankError
from bpt.events.bus import EventBus

_BEATS = 10  # in the time after which a rank counts as standing still
_FASTEST, _SLOWEST = 0.05, 1.0  # seconds between two beats
_WORDS = 120  # bytes in which a beat says what its rank does
_LAST = "its end"
_WATCHED = 3  # ranks before this one: so many may stand still at once
_LATER = 0.25  # of the timeout, that each further one of those who watch a rank leaves it to the nearer ones

End = Callable[[str, "int | None"], object]


class _Neighbour:
    """A rank that is watched: its beats, and when the last one came."""

    def __init__(self, comm: Communicator, rank: int, name: str, process: int | None, timeout: float) -> None:
        self.name = name
        self.process = process
        self.timeout = timeout
        self.said = "its start"
        self.last = time.monotonic()
        self.watched = True  # False: it has ended, or is lost, or was named
        self._comm = comm
        self._rank = rank
        self._heard: Buffer = np.zeros(_WORDS, np.uint8)
        self._hearing: Request = comm.Irecv(self._heard, rank)

    def listen(self) -> None:
        """Take what has come."""
        try:
            while self.watched and self._hearing.Test():
                self._take()
        except LostRankError:  # others notice that as well
            self.watched = False

    def wait(self) -> None:
        """Return when its last beat has come."""
        while self.watched:
            self._hearing.Wait()
            self._take()

    def _take(self) -> None:
        self.said, self.last = self._heard.tobytes().decode(errors="replace").strip(), time.monotonic()
        self.watched = self.said != _LAST
        if self.watched:
            self._hearing = self._comm.Irecv(self._heard, self._rank)


class Heartbeat:
    """Sends beats to the next ranks and listens to those before, until it is closed.

    Args:
        world: all ranks of the run, at least two; several threads may be in calls at once.
        timeout: seconds of silence after which a rank stands still.
        doing: what this rank does, in words; asked in a thread of its own.
        end: called with what there is to say about a rank, and its process if that is on this host.
    """

    def __init__(self, world: Communicator, timeout: float, doing: Callable[[], str], end: End | None = None) -> None:
        self._comm = comm = world.Dup()
        world.forget(comm)  # what is revoked when a rank is lost leaves it alone: it watches those that heal
        comm.events = EventBus(comm.rank)  # beats are nobody's business
        self._timeout = timeout
        self._period = min(max(timeout / _BEATS, _FASTEST), _SLOWEST)
        self._doing = doing
        self._end = end or end_it
        self._stop = threading.Event()
        facts = comm.allgather((comm.host, identity()))
        self._neighbours = []
        watched = range(1, min(_WATCHED, comm.size - 1) + 1)
        for distance in watched:
            rank = (comm.rank - distance) % comm.size
            host, (process, space) = facts[rank]
            own = process if (host, space) == (comm.host, identity()[1]) else None
            patience = timeout * (1 + _LATER * (distance - 1))
            self._neighbours.append(_Neighbour(comm, rank, name_of(comm.world_ranks[rank], host), own, patience))
        self._next = [(comm.rank + distance) % comm.size for distance in watched]
        self._sending: dict[int, tuple[Request, Buffer]] = {}
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self._thread.start()

    def close(self, failed: bool = False) -> None:
        """Send no more; a collective call, unless something ``failed``."""
        self._stop.set()
        if not failed:
            self._thread.join()
            for request, _ in self._sending.values():
                request.Wait()
            self._say(_LAST)
            for neighbour in self._neighbours:
                neighbour.wait()
            for request, _ in self._sending.values():
                request.Wait()
            self._comm.Free()

    def _run(self) -> None:
        woke = time.monotonic()
        while not self._stop.wait(self._period):
            try:
                self._say(self._doing())
                now = time.monotonic()
                for neighbour in self._neighbours:
                    if now - woke > self._timeout / 2:  # this one stood still itself
                        neighbour.last = now
                    neighbour.listen()
                    silence = now - neighbour.last
                    if neighbour.watched and silence > neighbour.timeout:
                        neighbour.watched = False
                        self._end(
                            f"{neighbour.name} stands still: nothing was heard of it for {silence:.3g} s; when it was "
                            f"last heard of, it was at {neighbour.said}",
                            neighbour.process,
                        )
                woke = now
            except BptError:
                return

    def _say(self, words: str) -> None:
        """To each of the next ranks that has taken what was said before; nobody waits for one that stands still."""
        beat = np.frombuffer(words.encode()[:_WORDS].ljust(_WORDS), np.uint8)
        for rank in self._next:
            try:
                if rank not in self._sending or self._sending[rank][0].Test():
                    self._sending[rank] = self._comm.Isend(beat, rank), beat
            except LostRankError:
                continue


def end_it(message: str, process: int | None) -> None:
    """Say so, and end the rank, or the job if the rank is out of reach.

    A process of this host is killed: then it is lost, and the others can go on if they are to. Nobody can be excluded
    who is only silent, so for one on another host the launcher is asked to end the job.
    """
    if process and not os.path.exists(f"/proc/{process}") and os.path.isdir("/proc/self"):
        return  # it has ended, which the launcher tells
    sys.stderr.write(f"error: {message}; {'it is killed' if process else 'the job ends'}\n")
    sys.stderr.flush()
    try:
        os.kill(process or os.getppid(), signal.SIGKILL if process else signal.SIGTERM)
    except ProcessLookupError:
        return
    except OSError:  # of another user, such as a cluster's daemon: which ends the job when a rank ends like that
        os._exit(1)
