"""The core of the virtual clocks: what waits for what, and until when, in a simulation of discrete events.

Pipelines and the forecast play processes that have a time of their own and wait for messages only, so no process need
know what time it is for the others: ``Process`` and ``run_all``. The outer layer has decisions that depend on what
happened first anywhere: ``EventQueue``. Both share links, streams and servers that serve one request after the other:
``Resource``. Times are seconds.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

Later = Callable[[Any, Any], Any]
"""The later of two moments. If they are arrays, as many simulations run at once, it is numpy's maximum."""


class Resource:
    """A resource that serves one request after the other: a link in one direction, a stream, a server's arithmetic.

    Attributes:
        free: from when on nothing is served.
    """

    def __init__(self, later: Later = max) -> None:
        self.free: Any = 0.0
        self._later = later

    def start(self, now: Any) -> Any:
        """Return when a request that comes at ``now`` starts."""
        return self._later(now, self.free)

    def serve(self, now: Any, seconds: Any) -> Any:
        """Serve a request of ``seconds`` at ``now``; return when it starts. Call in the order of arrival."""
        start = self.start(now)
        self.free = start + seconds
        return start


class Process:
    """A process with a time of its own, which works, and waits for others.

    Attributes:
        now: when it had done what it has done.
        busy, waiting: seconds until then in which it worked, and in which it waited.
    """

    def __init__(self, later: Later = max) -> None:
        self.now: Any = 0.0
        self.busy: Any = 0.0
        self.waiting: Any = 0.0
        self._later = later

    def work(self, seconds: Any) -> None:
        """Work for ``seconds``."""
        self.now, self.busy = self.now + seconds, self.busy + seconds  # arrays are not changed: others may hold them

    def wait_until(self, moment: Any) -> None:
        """Wait until ``moment``, unless it has passed."""
        self.waiting += self._later(moment - self.now, 0.0)
        self.now = self._later(moment, self.now)


class SteppedProcess(Process, ABC):
    """A process that does its steps in order, until one has to wait for another process.

    Attributes:
        step: the number of steps that are done.
    """

    def __init__(self, steps: Sequence[Any], later: Later = max) -> None:
        super().__init__(later)
        self.step = 0
        self._steps = steps

    @property
    def has_ended(self) -> bool:
        return self.step == len(self._steps)

    @abstractmethod
    def do(self, step: Any) -> bool:
        """Do a step; return whether that was possible."""

    def run(self) -> bool:
        """Run until the end, or until a step must wait for another process; return whether anything was done."""
        start = self.step
        while not self.has_ended and self.do(self._steps[self.step]):
            self.step += 1
        return self.step > start


def run_all(processes: Sequence[SteppedProcess]) -> bool:
    """Run processes until none can continue; return whether all have ended.

    Time is each process's own, so the order of their turns does not matter.
    """
    while any(process.run() for process in processes):
        pass
    return all(process.has_ended for process in processes)


class EventQueue:
    """Events in the order of their times; of several at one time the one that was scheduled first happens first.

    Attributes:
        now: the time of the last event.
        happened: the number of events until now.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.happened = 0
        self._events: list[tuple[float, int, Callable[..., None], tuple[object, ...]]] = []
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._events)

    def schedule(self, time: float, action: Callable[..., None], *arguments: object) -> None:
        """Let ``action`` happen at ``time``."""
        heapq.heappush(self._events, (time, next(self._numbers), action, arguments))

    def advance(self) -> None:
        """Let the next event happen."""
        self.now, _, action, arguments = heapq.heappop(self._events)
        self.happened += 1
        action(*arguments)
