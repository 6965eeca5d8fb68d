"""Heartbeat: notices ranks that stand still, which nobody would ever be told of: they are neither lost nor at work.

A process that is stopped, or whose host or link is dead without a word, leaves all others waiting in MPI for ever. So
each rank has a thread that sends the next one a sign of life, whatever its main thread does, with the instruction that
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

from bpt.comm.base import Communicator
from bpt.comm.connectivity import name_of
from bpt.comm.processes import identity
from bpt.errors import BptError
from bpt.events.bus import EventBus

_BEATS = 10  # in the time after which a rank counts as standing still
_FASTEST, _SLOWEST = 0.05, 1.0  # seconds between two beats
_WORDS = 120  # bytes in which a beat says what its rank does
_LAST = "its end"


class Heartbeat:
    """Sends beats to the next rank and listens to the one before, until it is closed.

    Args:
        world: all ranks of the run, at least two; several threads may be in calls at once.
        timeout: seconds of silence after which a rank stands still.
        doing: what this rank does, in words; asked in a thread of its own.
        end: called with what there is to say about the rank before, and its process if that is on this host.
    """

    def __init__(
        self,
        world: Communicator,
        timeout: float,
        doing: Callable[[], str],
        end: Callable[[str, int | None], object] | None = None,
    ) -> None:
        self._comm = comm = world.Dup()
        comm.events = EventBus(comm.rank)  # beats are nobody's business
        self._timeout = timeout
        self._period = min(max(timeout / _BEATS, _FASTEST), _SLOWEST)
        self._doing = doing
        self._end = end or end_it
        self._stop = threading.Event()
        facts = comm.allgather((comm.host, identity()))
        before = (comm.rank - 1) % comm.size
        host, (process, space) = facts[before]
        self._name = name_of(comm.world_ranks[before], host)
        self._process = process if (host, space) == (comm.host, identity()[1]) else None
        self._before, self._next = before, (comm.rank + 1) % comm.size
        self._heard = np.zeros(_WORDS, np.uint8)
        self._hearing = comm.Irecv(self._heard, before)
        self._say("its start")
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self._thread.start()

    def close(self, failed: bool = False) -> None:
        """Send no more; a collective call, unless something ``failed``."""
        self._stop.set()
        if not failed:
            self._thread.join()
            self._part()
            self._comm.Free()

    def _run(self) -> None:
        last = woke = time.monotonic()
        said = "nothing yet"
        while not self._stop.wait(self._period):
            try:
                if self._sending.Test():
                    self._say(self._doing())
                now = time.monotonic()
                if now - woke > self._timeout / 2:  # this one stood still itself
                    last = now
                woke = now
                while self._hearing.Test():
                    last, said = now, self._heard.tobytes().decode(errors="replace").strip()
                    self._hearing = self._comm.Irecv(self._heard, self._before)
            except BptError:  # a rank is lost, which others notice as well
                return
            if now - last > self._timeout:
                self._end(
                    f"{self._name} stands still: nothing was heard of it for {now - last:.3g} s; when it was last "
                    f"heard of, it was at {said}",
                    self._process,
                )
                return

    def _say(self, words: str) -> None:
        self._beat = np.frombuffer(words.encode()[:_WORDS].ljust(_WORDS), np.uint8)
        self._sending = self._comm.Isend(self._beat, self._next)

    def _part(self) -> None:
        """Leave no message under way: say the last one, and hear that of the rank before."""
        self._sending.Wait()
        self._say(_LAST)
        self._hearing.Wait()
        while self._heard.tobytes().decode(errors="replace").strip() != _LAST:
            self._comm.Recv(self._heard, self._before)
        self._sending.Wait()


def end_it(message: str, process: int | None) -> None:
    """Say so, and end the rank, or the job if the rank is out of reach.

    A process of this host is killed: then it is lost, and the others can go on if they are to. Nobody can be excluded
    who is only silent, so for one on another host the launcher is asked to end the job.
    """
    sys.stderr.write(f"error: {message}; {'it is killed' if process else 'the job ends'}\n")
    sys.stderr.flush()
    os.kill(process or os.getppid(), signal.SIGKILL if process else signal.SIGTERM)
