"""The link between the server and a worker in the same process, where the worker runs in a separate thread."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from bpt.parallel.outer.outer_instructions import Order, Settled, SubmissionReport
from bpt.system.comm.base import Buffer
from bpt.train.outer.messages import WorkerProgress
from bpt.train.outer.worker_links import Event, Submission, ToServer
from bpt.train.solver.solver import RunOutcome


class Colocated:
    """Both ends of the link between the server and a worker in its process, and the worker's thread.

    ``poll`` raises the worker's exceptions. Weights stay in memory: no bytes are sent or received.
    """

    def __init__(self) -> None:
        self.sent = 0
        self.received = 0
        self._events: queue.SimpleQueue[Event | _Failure] = queue.SimpleQueue()
        # None: hurry
        self._orders: queue.SimpleQueue[tuple[Order, Buffer | None] | None] = queue.SimpleQueue()
        self._outcome: queue.SimpleQueue[RunOutcome] = queue.SimpleQueue()
        self._hurried = False
        self._thread: threading.Thread | None = None

    def start(self, work: Callable[[ToServer], object]) -> None:
        """Run ``work``, the worker, in a thread with its end of the link."""

        def run() -> None:
            try:
                work(self)
            except BaseException as error:
                self._events.put(_Failure(error))

        # A daemon: if the server fails, the worker's wait for an order must not keep the process alive.
        self._thread = threading.Thread(target=run, name="colocated worker", daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Wait until the worker has ended."""
        if self._thread is not None:
            self._thread.join()

    # The server's end

    def poll(self) -> Event | None:
        """Return the next event from the worker, or ``None`` if there is none."""
        try:
            event = self._events.get_nowait()
        except queue.Empty:
            return None
        if isinstance(event, _Failure):
            raise event.error
        return event

    def send(self, order: Order, weights: Buffer | None) -> None:
        """Send an order to the worker."""
        self._orders.put((order, weights))

    def hurry(self) -> None:
        """Ask the worker to submit after its iteration."""
        self._orders.put(None)

    def finish(self, outcome: RunOutcome) -> None:
        """Send the outcome of the run to the worker, which has stopped."""
        self._outcome.put(outcome)

    @property
    def idle(self) -> bool:
        """Whether no message is under way in either direction."""
        return True

    # The worker's end

    def report(self, word: WorkerProgress | Settled) -> None:
        """Report the progress of a pass, or the choice of how to compute."""
        self._events.put(word)

    def submit(self, report: SubmissionReport, weights: Buffer) -> None:
        """Submit weights, or gradients, to the server."""
        self._events.put(Submission(report, weights))

    def order(self) -> tuple[Order, Buffer | None]:
        """Wait for the next order, and the weights that come with it."""
        while (found := self._orders.get()) is None:
            pass  # the order is here already
        self._hurried = False
        return found

    def finished(self) -> RunOutcome:
        """Wait for the end of the run after an order to stop, and return its outcome."""
        return self._outcome.get()

    @property
    def hurried(self) -> bool:
        """Whether the server has asked for a submission after this iteration."""
        if not self._hurried and not self._orders.empty():
            assert self._orders.get() is None, "an order without a request"
            self._hurried = True
        return self._hurried


class _Failure:
    """The exception that the worker raised."""

    def __init__(self, error: BaseException) -> None:
        self.error = error
