"""A CUDA device that is pretended: its streams are threads, and its events behave as CUDA's, traps included."""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch

Work = Callable[[], object]


class FakeCuda:
    """Stands in for ``torch.cuda``'s streams and events.

    Attributes:
        calls: what was called, in order: "record e0 on s1", "s1 waits for e0", "host waits for e0".
    """

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.streams: list[FakeStream] = []
        self._events = itertools.count()
        self._local = threading.local()
        self.default = FakeStream(self)

    def new_stream(self, device: torch.device) -> FakeStream:
        assert device.type == "cuda"
        return FakeStream(self)

    def new_event(self, blocking: bool = False) -> FakeEvent:
        assert blocking  # who waits must not compute
        return FakeEvent(self, next(self._events))

    def current_stream(self, device: torch.device | None = None) -> FakeStream:
        current: FakeStream = getattr(self._local, "stream", self.default)
        return current

    @contextmanager
    def stream(self, stream: FakeStream) -> Iterator[None]:
        before = self.current_stream()
        self._local.stream = stream
        yield
        self._local.stream = before

    def launch(self, work: Work) -> None:
        """What a kernel or an asynchronous copy does: let the calling thread's current stream do ``work``."""
        self.current_stream().enqueue(work)


class FakeStream:
    """Does what it is given in order, in a thread that stands for the device."""

    def __init__(self, cuda: FakeCuda) -> None:
        self.name = f"s{len(cuda.streams)}" if cuda.streams else "default"
        cuda.streams.append(self)
        self._calls = cuda.calls
        self._queue: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=f"device: {self.name}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while (work := self._queue.get()) is not None:
            work()

    def enqueue(self, work: Work) -> None:
        self._queue.put(work)

    def wait_event(self, event: FakeEvent) -> None:
        self._calls.append(f"{self.name} waits for {event.name}")
        if event.reached is not None:  # else it counts as reached, as in CUDA
            self.enqueue(event.reached.wait)

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join(60)
        assert not self._thread.is_alive()


class FakeEvent:
    """Reached until it is recorded, and then when the stream comes to where that was."""

    def __init__(self, cuda: FakeCuda, number: int) -> None:
        self.name = f"e{number}"
        self.reached: threading.Event | None = None
        self._calls = cuda.calls

    def record(self, stream: FakeStream) -> None:
        self._calls.append(f"record {self.name} on {stream.name}")
        self.reached = threading.Event()
        stream.enqueue(self.reached.set)

    def query(self) -> bool:
        return self.reached is None or self.reached.is_set()

    def synchronize(self) -> None:
        self._calls.append(f"host waits for {self.name}")
        if self.reached is not None:
            assert self.reached.wait(60)


@contextmanager
def pretended_cuda() -> Iterator[FakeCuda]:
    """``torch.cuda`` with a pretended device, whose streams end with the context."""
    cuda = FakeCuda()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "Stream", cuda.new_stream)
        patch.setattr(torch.cuda, "Event", cuda.new_event)
        patch.setattr(torch.cuda, "stream", cuda.stream)
        patch.setattr(torch.cuda, "current_stream", cuda.current_stream)
        yield cuda
        for stream in cuda.streams:
            stream.close()
