"""What a stream and an event are, on any device; and those of a CPU: the caller itself, and a thread beside it."""

from __future__ import annotations

import weakref
from typing import Protocol

import torch

from bpt.base.worker_thread import Mark, Work, WorkerThread


class StreamEvent(Protocol):
    """A point in a stream: it is reached when all that the stream was given before it is done."""

    def wait(self) -> None:
        """Block the calling thread until the event is reached.

        Raises:
            Exception: what the work before it raised; the same one on every call.
            RunError: the stream was closed or forgotten before it came here.
        """

    def done(self) -> bool:
        """Return whether ``wait`` would return, or raise, at once."""


class Stream(Protocol):
    """Does what it is given one after the other, beside other streams.

    A stream whose work fails stays failed: what it is given from then on is skipped, and every event recorded since
    raises what the work raised, as does the work of streams that go on ``after`` such an event.

    A stream may be used from any thread; the order is that of the calls.
    """

    def run(self, work: Work) -> None:
        """Do ``work`` when all that was submitted before is done; return at once.

        On a CUDA device work that copies or computes there only *enqueues*, so it returns long before the device is
        done. Memory that it uses must stay until an event recorded after it is reached: torch's allocator gives freed
        memory to the stream that it came from, which does not wait for this one.
        """

    def submit(self, work: Work) -> StreamEvent:
        """``run`` and ``record`` in one, at the price of one: the thread is woken once."""

    def after(self, event: StreamEvent) -> None:
        """What is submitted from now on starts when ``event``, of any stream, is reached."""

    def record(self) -> StreamEvent:
        """Return an event that is reached when all that was submitted so far is done."""

    def close(self) -> None:
        """End the stream once what it is at is done, without waiting for that.

        What it has not begun is dropped, and events not reached by then raise ``RunError``. A stream that is
        forgotten closes itself. Closing twice is allowed.
        """


class NullStream:
    """The caller itself: work is done, and events are waited for, at once."""

    def run(self, work: Work) -> None:
        """Do ``work``; what it raises is raised here, and the stream does not fail by it."""
        work()

    def submit(self, work: Work) -> StreamEvent:
        """Do ``work``; the event is reached."""
        work()
        return reached()

    def after(self, event: StreamEvent) -> None:
        """Wait for ``event``."""
        event.wait()

    def record(self) -> StreamEvent:
        """Return an event that is reached."""
        return reached()

    def close(self) -> None:
        """Nothing to end."""


class ThreadStream:
    """A host thread beside the caller's, started at the first ``run`` or ``after``.

    Args:
        name: what the thread is called, before the name of the thread that made the stream.
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
        """Do ``work`` in the thread, without recording for gradients."""
        mark = Mark()
        self._worker.submit(work, mark)
        return mark

    def after(self, event: StreamEvent) -> None:
        """Let the thread wait for ``event``."""
        self._worker.submit(event.wait)

    def record(self) -> StreamEvent:
        """Return an event that the thread reaches."""
        if self._worker.untouched:
            return reached()
        mark = Mark()
        self._worker.submit(_nothing, mark)
        return mark

    def close(self) -> None:
        """End the thread once what it is at is done."""
        self._stop()


def reached() -> Mark:
    """Return an event that is reached."""
    mark = Mark()
    mark.reach()
    return mark


def _nothing() -> None:
    """The work of a mark alone."""
