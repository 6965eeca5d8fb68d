"""Streams that hesitate: whatever may happen between two stages of CGDP happens sooner or later."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable

import pytest
import torch

from bpt.parallel.cgdp import exchange
from bpt.system.device import Stream, StreamEvent, new_stream


class Delayed:
    """A stream that hesitates before all it does, for a random time that may be none."""

    def __init__(self, stream: Stream, seed: str) -> None:
        self._stream = stream
        self._random = random.Random(seed)
        self._never = threading.Event()

    def run(self, work: Callable[[], None]) -> None:
        self._stream.run(self._delayed(work))

    def submit(self, work: Callable[[], None]) -> StreamEvent:
        return self._stream.submit(self._delayed(work))

    def _delayed(self, work: Callable[[], None]) -> Callable[[], None]:
        def delayed() -> None:
            if self._random.random() < 0.3:
                self._never.wait(self._random.choice([1e-6, 1e-4, 4e-4]))
            work()

        return delayed

    def after(self, event: StreamEvent) -> None:
        self._stream.after(event)

    def record(self) -> StreamEvent:
        return self._stream.record()

    def close(self) -> None:
        self._stream.close()


def delay_streams(monkeypatch: pytest.MonkeyPatch, apart: bool = False) -> None:
    """Let all streams that CGDP makes from now on hesitate, each in its own way.

    Args:
        apart: each stage has a stream of its own, as on a GPU.
    """
    numbers = itertools.count()

    def delayed_stream(device: torch.device, name: str) -> Stream:
        return Delayed(new_stream(device, name), f"{name} {next(numbers)}")

    monkeypatch.setattr(exchange, "new_stream", delayed_stream)
    if apart:
        names = ("D2H", "host", "between hosts", "H2D")
        monkeypatch.setattr(
            exchange.Cgdp, "_streams", lambda self: tuple(delayed_stream(self.device, name) for name in names)
        )
