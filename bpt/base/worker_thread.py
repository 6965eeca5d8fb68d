"""A thread that does work in order of submission, and reaches marks in that order."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from bpt.base.errors import RunError

Work = Callable[[], None]


class Mark:
    """An event on the host: reached once, with or without an error."""

    def __init__(self) -> None:
        self._reached = threading.Event()
        self._error: BaseException | None = None

    def reach(self, error: BaseException | None = None) -> None:
        """Wake all waiting threads; with ``error`` they raise it."""
        self._error = error
        self._reached.set()

    def wait(self) -> None:
        """Block the calling thread until the mark is reached; raise the error that it was reached with."""
        self._reached.wait()
        if self._error is not None:
            raise self._error

    def done(self) -> bool:
        """Return whether ``wait`` would return, or raise, at once."""
        return self._reached.is_set()


class _Orders:
    """The queue of work for a worker. It is enough to stop the worker, and does not refer to its error."""

    def __init__(self) -> None:
        self.queue: queue.SimpleQueue[tuple[Work, Mark | None] | None] = queue.SimpleQueue()
        self.stopped = False

    def stop(self) -> None:
        """Stop the worker without a lock, because the garbage collector may call this in any thread at any time."""
        self.stopped = True
        self.queue.put(None)  # wakes the thread


class WorkerThread:
    """A thread that does work in order of submission. It starts with the first work.

    The first work that raises an error ends the thread. All later work is dropped, and its marks are reached with the
    error. The thread does not refer to its user, so the user can be garbage-collected while the thread runs.

    Args:
        name: the first part of the thread's name; the name of the thread that made the worker follows.
        within: makes the context in which the thread does all its work.

    Attributes:
        stop: ends the thread after its present work. Marks that it has not reached then are reached with ``RunError``.
            It suits ``weakref.finalize``, because it does not refer to the error, which may refer to the user.
    """

    def __init__(self, name: str, within: Callable[[], AbstractContextManager[object]] = nullcontext) -> None:
        self._name = f"{name} of {threading.current_thread().name}"
        self._within = within
        self._orders = _Orders()
        self.stop: Callable[[], None] = self._orders.stop
        self._lock = threading.Lock()  # held during submission, and by the thread when it ends
        self._started = False
        self._error: BaseException | None = None

    @property
    def untouched(self) -> bool:
        """Whether the worker was neither given work nor stopped."""
        return not (self._started or self._orders.stopped)

    def submit(self, work: Work, mark: Mark | None = None) -> None:
        """Submit ``work`` and return at once; the thread does it after all earlier work, then reaches ``mark``."""
        with self._lock:
            if self._error is None and self._orders.stopped and not self._started:
                self._error = self._closed()
            error = self._error
            if error is None:
                if not self._started:
                    # It is a daemon: work that waits for a lost rank must not keep the process alive.
                    threading.Thread(target=self._run, name=self._name, daemon=True).start()
                    self._started = True
                self._orders.queue.put((work, mark))
                return
        if mark is not None:
            mark.reach(error)

    def _closed(self) -> RunError:
        return RunError(f"{self._name}: closed before its work was done")

    def _run(self) -> None:
        mark = None
        try:
            with self._within():
                while (order := self._orders.queue.get()) is not None:
                    work, mark = order
                    if self._orders.stopped:
                        break
                    work()
                    del order, work  # so that their objects are free before the mark is reached
                    if mark is not None:
                        mark.reach()
                        mark = None
            self._end(self._closed(), mark)
        except BaseException as error:
            self._end(error, mark)

    def _end(self, error: BaseException, mark: Mark | None) -> None:
        """Reach ``mark`` and all later marks with ``error``."""
        with self._lock:
            self._error = error
        if mark is not None:
            mark.reach(error)
        while not self._orders.queue.empty():  # no thread adds marks now
            _, mark = self._orders.queue.get() or (None, None)
            if mark is not None:
                mark.reach(error)
