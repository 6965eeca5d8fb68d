"""Streams of a CPU: the caller itself, and a thread beside it."""

from __future__ import annotations

import weakref

import torch

from bpt.device.base import Event
from bpt.worker_thread import Mark, Work, WorkerThread


class NullStream:
    """The caller itself: work is done, and events are waited for, at once."""

    def run(self, work: Work) -> None:
        """Do ``work``; what it raises is raised here, and the stream does not fail by it."""
        work()

    def submit(self, work: Work) -> Event:
        """Do ``work``; the event is reached."""
        work()
        return reached()

    def after(self, event: Event) -> None:
        """Wait for ``event``."""
        event.wait()

    def record(self) -> Event:
        """An event that is reached."""
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

    def submit(self, work: Work) -> Event:
        """Do ``work`` in the thread, without recording for gradients."""
        mark = Mark()
        self._worker.submit(work, mark)
        return mark

    def after(self, event: Event) -> None:
        """Let the thread wait for ``event``."""
        self._worker.submit(event.wait)

    def record(self) -> Event:
        """An event that the thread reaches."""
        if self._worker.untouched:
            return reached()
        mark = Mark()
        self._worker.submit(_nothing, mark)
        return mark

    def close(self) -> None:
        """End the thread once what it is at is done."""
        self._stop()


def reached() -> Mark:
    """An event that is reached."""
    mark = Mark()
    mark.reach()
    return mark


def _nothing() -> None:
    """The work of a mark alone."""
