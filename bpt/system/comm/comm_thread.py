"""CommThread: does a rank's communications in a thread of its own, so that the rank can continue computing."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from functools import partial

from bpt.base.worker_thread import Mark, Work, WorkerThread
from bpt.system.comm.base import Communicator
from bpt.system.events.bus import EventBus
from bpt.system.events.event import Action
from bpt.system.events.flight_recorder import WAIT


class CommThread:
    """A thread that does submitted communications, one after the other, in the order of submission.

    As all ranks submit the same collectives in the same order, the calls match. A communicator of submitted work must
    not be used elsewhere while work is active: take a ``Dup``. Where there is nobody to wait for, or the library does
    not allow calls from several threads, the caller does the work at once. So programs read the same.

    ``comm`` may be some of the ranks, such as the leaders of hosts, made by ``Split``; then only they have one. Only
    ``comm`` decides whether there is anybody to wait for. If it has one rank, the caller does the work at once, even if
    the work waits for ranks outside of ``comm``, in a window or a larger communicator.

    The thread starts at the first ``submit``.

    Args:
        comm: the ranks; work may also use communicators that were made from it.

    Attributes:
        exposed: seconds that the caller has waited since the start, for communication that computing did not hide.
    """

    def __init__(self, comm: Communicator) -> None:
        self.comm = comm
        self.exposed = 0.0
        self._concurrent = comm.size > 1 and comm.concurrent
        self._thread: WorkerThread | None = None
        self._last: Mark | None = None  # the mark of the last submitted work
        self._stop: Callable[[], object] = lambda: None

    def submit(self, work: Work, what: Action, message: str = "") -> Mark:
        """Do ``work`` when all earlier work is done; its calls belong to ``what`` (EventBus). Return its mark."""
        if not self._concurrent:
            start = time.perf_counter()
            try:
                _do_part(self.comm.events, work, what, message)
            finally:
                self.exposed += time.perf_counter() - start
            mark = Mark()
            mark.reach()
            return mark
        if self._thread is None:
            self._thread = WorkerThread("comm_thread")
            # Also ends the thread when this is forgotten, or the program ends.
            self._stop = weakref.finalize(self, self._thread.stop)
        self._last = Mark()
        self._thread.submit(partial(_do_part, self.comm.events, work, what, message), self._last)
        return self._last

    def wait(self, mark: Mark | None = None) -> None:
        """Return when all submitted work is done, or the work of ``mark``.

        Raises:
            Exception: the error of the work; work that was submitted after it was dropped.
        """
        mark = mark or self._last
        if mark is None:
            return
        start = time.perf_counter()
        try:
            with self.comm.events.waiting(WAIT):
                mark.wait()
        except BaseException:
            if mark.done():  # the work failed; later work starts afresh
                self.close()
            raise
        finally:
            self.exposed += time.perf_counter() - start

    def close(self) -> None:
        """End the thread after its current work, without waiting for that; ``submit`` would start another."""
        self._stop()
        self._thread = self._last = None


def _do_part(events: EventBus, work: Work, what: Action, message: str) -> None:
    """Do the work, without a reference to the CommThread, which can so be forgotten while this waits for its turn."""
    with events.part_of(what, message):
        work()
