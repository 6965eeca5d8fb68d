"""Streams and events of any device; and those of a CPU: the caller itself, and a thread beside it."""

from __future__ import annotations

import weakref
from typing import Protocol

import torch

from bpt.base.worker_thread import Mark, Work, WorkerThread


class StreamEvent(Protocol):
    """A point in a stream. It is reached when all work that the stream received before it is done."""

    def wait(self) -> None:
        """Block the calling thread until the event is reached.

        Raises:
            Exception: the error of the work before it; the same one on every call.
            RunError: the stream was closed or forgotten before it reached the event.
        """

    def done(self) -> bool:
        """Return whether ``wait`` would return, or raise, at once."""


class Stream(Protocol):
    """A queue of work, done in order, concurrently with other streams.

    A stream whose work fails stays failed. It skips all further work, and every event recorded since raises the same
    error. So does the work of streams that continue ``after`` such an event.

    A stream may be used from any thread; the order is that of the calls.
    """

    def run(self, work: Work) -> None:
        """Do ``work`` when all earlier work is done; return at once.

        On a CUDA device, work that copies or computes there only *enqueues*, so it returns long before the device is
        done. Its memory must stay until an event recorded after it is reached. torch's allocator gives freed memory to
        the stream that it came from, which does not wait for this one.
        """

    def submit(self, work: Work) -> StreamEvent:
        """Run ``work`` and record an event, but wake the thread only once."""

    def after(self, event: StreamEvent) -> None:
        """Let all later work start only when ``event``, of any stream, is reached."""

    def record(self) -> StreamEvent:
        """Return an event that is reached when all earlier work is done."""

    def close(self) -> None:
        """End the stream after its current work, without waiting for that.

        Work that has not begun is dropped, and events not reached by then raise ``RunError``. A stream that is
        forgotten closes itself. Closing twice is allowed.
        """


class NullStream:
    """The caller itself: work is done, and events are waited for, at once."""

    def run(self, work: Work) -> None:
        """Do ``work``. Its errors are raised here, and the stream does not fail."""
        work()

    def submit(self, work: Work) -> StreamEvent:
        work()
        return reached()

    def after(self, event: StreamEvent) -> None:
        event.wait()

    def record(self) -> StreamEvent:
        return reached()

    def close(self) -> None: ...


class ThreadStream:
    """A host thread beside the caller's, started at the first ``run`` or ``after``.

    Args:
        name: the first part of the thread's name, before the name of the thread that made the stream.
    """

    def __init__(self, name: str) -> None:
        # A thread starts with gradients enabled; the other settings of torch are the process's.
        self._worker = WorkerThread(name, torch.no_grad)
        # Also ends the thread when the stream is forgotten, or the program ends.
        self._stop = weakref.finalize(self, self._worker.stop)

    def run(self, work: Work) -> None:
        """Do ``work`` in the thread, without recording for gradients."""
        self._worker.submit(work)

    def submit(self, work: Work) -> StreamEvent:
        mark = Mark()
        self._worker.submit(work, mark)
        return mark

    def after(self, event: StreamEvent) -> None:
        self._worker.submit(event.wait)

    def record(self) -> StreamEvent:
        if self._worker.untouched:
            return reached()
        mark = Mark()
        self._worker.submit(_no_work, mark)
        return mark

    def close(self) -> None:
        self._stop()


def reached() -> Mark:
    """Return an event that is reached."""
    mark = Mark()
    mark.reach()
    return mark


def _no_work() -> None:
    """Do nothing: the work of an event alone."""
