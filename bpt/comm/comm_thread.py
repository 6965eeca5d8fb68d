"""CommThread: carries out a rank's communications in a thread of its own, so that the rank can go on computing."""

from __future__ import annotations

import queue
import threading
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

from bpt.comm.base import Communicator
from bpt.events.bus import EventBus
from bpt.events.event import Activity

if TYPE_CHECKING:
    from bpt.schedule.instructions import Instruction

Work = Callable[[], None]


class CommThread:
    """Carries out what is submitted, one after the other, in the order of submission.

    As all ranks submit the same collectives in the same order, they meet. A communicator that submitted work uses
    must not be used elsewhere while something is under way: take a ``Dup``. Where there is nobody to wait for, or the
    library does not allow calls from several threads, the caller does the work at once, so programs read the same.

    ``comm`` may be some of the ranks, such as the leaders of hosts, made by ``Split``; then only they
    have one.
    Whether there is anybody to wait for is asked of ``comm`` alone: if it has one rank, the caller does the work at
    once, also if it waits there for ranks outside of ``comm``, in a window or a larger communicator.

    The thread starts at the first ``submit``.

    Args:
        comm: the ranks; work may also use communicators that were made from it.

    Attributes:
        exposed: seconds that the caller has waited, since the start: communication that computing did not hide.
    """

    def __init__(self, comm: Communicator) -> None:
        self.comm = comm
        self.exposed = 0.0
        self._apart = comm.size > 1 and comm.concurrent
        self._worker: _Worker | None = None
        self._stop: Callable[[], object] = lambda: None

    def submit(self, work: Work, what: Instruction | Activity, message: str = "") -> None:
        """Do ``work`` when all that was submitted before is done; its calls are part of ``what``, see EventBus."""
        if not self._apart:
            with self.comm.events.part_of(what, message):
                start = time.perf_counter()
                try:
                    work()
                finally:
                    self.exposed += time.perf_counter() - start
            return
        if self._worker is None:
            self._worker = _Worker(self.comm.events)
            # Also ends the thread when the comm_thread is forgotten, or the program ends.
            self._stop = weakref.finalize(self, self._worker.stop)
        self._worker.submit(work, what, message)

    def wait(self) -> None:
        """Return when all that was submitted is done.

        Raises:
            Exception: what work raised; what had been submitted after it was dropped.
        """
        if self._worker is None:
            return
        start = time.perf_counter()
        try:
            self._worker.wait()
        finally:
            self.exposed += time.perf_counter() - start

    def close(self) -> None:
        """End the thread once what it is at is done, without waiting for that; ``submit`` would start another."""
        self._stop()
        self._worker = None


class _Worker:
    """The thread; it knows nothing of its CommThread, so that this one can be forgotten."""

    def __init__(self, events: EventBus) -> None:
        self._events = events
        self._queue: queue.SimpleQueue[tuple[Work, Instruction | Activity, str] | None] = queue.SimpleQueue()
        self._change = threading.Condition()
        self._open = 0  # submitted and not done
        self._error: BaseException | None = None
        self._stopping = False
        # A daemon: a call that waits for a rank that is gone must not keep the process alive.
        name = f"comm_thread of {threading.current_thread().name}"
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def submit(self, work: Work, what: Instruction | Activity, message: str) -> None:
        with self._change:
            self._open += 1
        self._queue.put((work, what, message))

    def wait(self) -> None:
        with self._change:
            self._change.wait_for(lambda: not self._open)
            error, self._error = self._error, None
        if error is not None:
            raise error

    def stop(self) -> None:
        self._stopping = True
        self._queue.put(None)

    def _run(self) -> None:
        while (order := self._queue.get()) is not None:
            work, what, message = order
            error = None
            if self._error is None and not self._stopping:
                try:
                    with self._events.part_of(what, message):
                        work()
                except BaseException as caught:
                    error = caught
            del order, work  # what it refers to is free before the next order comes
            with self._change:
                self._error = self._error or error
                self._open -= 1
                self._change.notify_all()
