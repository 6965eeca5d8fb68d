"""Streams of a CUDA device: the one on which the caller computes, and one beside it that a thread feeds."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from bpt.base.worker_thread import Mark, Work, WorkerThread
from bpt.system.device.streams import StreamEvent, reached


class CudaEvent:
    """An event of a device; ``recorded`` is reached when the stream's thread has recorded it there.

    Until then the device's event counts as reached, so an earlier question or wait would pass everything.
    """

    def __init__(self, recorded: Mark) -> None:
        self._recorded = recorded
        # Blocking: a waiting thread sleeps, since the cores have other work.
        self._event = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]

    def wait(self) -> None:
        """Block the calling thread until the device reaches the event; raise the error of the work before it."""
        self._recorded.wait()
        self._event.synchronize()

    def done(self) -> bool:
        return self._recorded.done() and bool(self._event.query())  # type: ignore[no-untyped-call]

    def hold(self, stream: torch.cuda.Stream) -> None:
        """Let the device wait before it continues ``stream``. The caller waits only until the event is recorded."""
        self._recorded.wait()
        stream.wait_event(self._event)

    def mark(self, stream: torch.cuda.Stream) -> None:
        """Record the event, which the device reaches after all current work of ``stream``."""
        self._event.record(stream)


class CurrentStream:
    """The stream that is current in the calling thread at each call, on which torch computes.

    Errors of work are raised in the caller, and the stream does not fail.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def run(self, work: Work) -> None:
        """Call ``work``, which enqueues."""
        work()

    def submit(self, work: Work) -> StreamEvent:
        work()
        return self.record()

    def after(self, event: StreamEvent) -> None:
        """Let the device wait for ``event``, or the caller if it is not a device's event."""
        _hold(torch.cuda.current_stream(self._device), event)

    def record(self) -> StreamEvent:
        """Return an event that is reached when the device has done all work enqueued so far."""
        event = CudaEvent(reached())
        event.mark(torch.cuda.current_stream(self._device))
        return event

    def close(self) -> None: ...


class SideStream:
    """A stream of the device beside the one on which it computes, and the thread that feeds it.

    Args:
        device: the CUDA device.
        name: the first part of the thread's name, before the name of the thread that made the stream.
    """

    def __init__(self, device: torch.device, name: str) -> None:
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._worker = WorkerThread(name, functools.partial(_feeding, self._stream))
        # Also ends the thread when the stream is forgotten, or the program ends.
        self._stop = weakref.finalize(self, self._worker.stop)

    def run(self, work: Work) -> None:
        """Let the thread call ``work``, which enqueues to this stream."""
        self._worker.submit(work)

    def submit(self, work: Work) -> StreamEvent:
        mark = Mark()
        event = CudaEvent(mark)

        def work_and_mark() -> None:
            work()
            event.mark(self._stream)

        self._worker.submit(work_and_mark, mark)
        return event

    def after(self, event: StreamEvent) -> None:
        """Let the device wait for ``event``, or the thread if it is not a device's event."""
        self._worker.submit(functools.partial(_hold, self._stream, event))

    def record(self) -> StreamEvent:
        """Return an event that is reached when the device has done all work of the thread so far."""
        if self._worker.untouched:
            return reached()
        mark = Mark()
        event = CudaEvent(mark)
        self._worker.submit(functools.partial(event.mark, self._stream), mark)
        return event

    def close(self) -> None:
        self._stop()


@contextmanager
def _feeding(stream: torch.cuda.Stream) -> Iterator[None]:
    """Return the settings of the thread: ``stream`` and its device are current, and no gradients are recorded."""
    with torch.no_grad(), torch.cuda.stream(stream):
        yield


def _hold(stream: torch.cuda.Stream, event: StreamEvent) -> None:
    """Let later work of ``stream`` start when ``event`` is reached."""
    if isinstance(event, CudaEvent):
        event.hold(stream)
    else:
        event.wait()
