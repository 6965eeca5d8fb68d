"""How ranks that are threads of one process meet: in collectives, in messages, and in the end of their job."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np

from bpt.comm.base import Buffer
from bpt.comm.pieces import flat
from bpt.errors import RunError

T = TypeVar("T")


class AnotherRankError(RunError):
    """Raised by the calls of ranks that are well, when another one is not."""


class Job:
    """What all groups of one ``run_ranks`` share: the clock, and the first failure."""

    def __init__(self, timeout: float) -> None:
        self.deadline = time.monotonic() + timeout
        self.change = threading.Condition()
        self.error: BaseException | None = None
        self.waiting: dict[int, str] = {}  # thread → who waits in what

    def fail(self, error: BaseException) -> None:
        with self.change:
            self.error = self.error or error
            self.change.notify_all()

    def describe(self) -> str:
        return ", ".join(sorted(self.waiting.values())) or "none waits for another"

    def end_of(self, call: str) -> BaseException:
        """What a call raises when it cannot be completed any more: Abort leaves no rank alive."""
        if isinstance(self.error, SystemExit):
            return SystemExit(self.error.code)
        error = AnotherRankError(f"{call}: another rank failed")
        error.__cause__ = self.error
        return error

    def wait_for(self, done: Callable[[], object], call: str) -> None:
        """Wait until ``done``; the lock is held. Every wait of every group ends with the job."""
        thread = threading.current_thread()
        self.waiting[id(thread)] = f"{thread.name} waits in {call}"
        arrived = self.change.wait_for(lambda: done() or self.error, timeout=max(0.0, self.deadline - time.monotonic()))
        if not done():
            if not arrived:
                self.error = self.error or TimeoutError(f"the ranks wait for each other: {self.describe()}")
                self.change.notify_all()
            raise self.end_of(call)
        del self.waiting[id(thread)]


class Message:
    """One side of a transfer, until the other side comes."""

    def __init__(self, buffer: Buffer, job: Job, call: str) -> None:
        self.buffer = buffer
        self.done = False
        self._job = job
        self._call = call

    def Wait(self) -> None:
        with self._job.change:
            self._job.wait_for(lambda: self.done, self._call)

    def Test(self) -> bool:
        with self._job.change:
            if self._job.error is not None and not self.done:
                raise self._job.end_of(self._call)
            return self.done


class Group:
    """What the ranks of one communicator share.

    Attributes:
        hosts: the host that each rank says it is on; None: that of this process.
    """

    def __init__(self, size: int, job: Job, hosts: Sequence[str] | None = None) -> None:
        self.size = size
        self.job = job
        self.hosts = hosts
        self._slots: dict[int, tuple[Any, Any]] = {}
        self._leaving = 0
        self._sent: dict[tuple[int, int, int], deque[Message]] = {}
        self._wanted: dict[tuple[int, int, int], deque[Message]] = {}

    @contextmanager
    def together(self, rank: int, call: tuple[object, ...], value: T) -> Iterator[list[T]]:
        """Meet all ranks, see what each has brought by rank, and part only when all have looked."""
        job, name = self.job, str(call[0])
        with job.change:
            if job.error is not None:
                raise job.end_of(name)
            assert rank not in self._slots, f"rank {rank} is in two collectives of one communicator at once"
            self._slots[rank] = call, value
            if len(self._slots) == self.size:
                self._leaving = self.size
                job.change.notify_all()
            job.wait_for(lambda: self._leaving, name)
            calls = [self._slots[other][0] for other in range(self.size)]
            values: list[T] = [self._slots[other][1] for other in range(self.size)]
        assert all(other == call for other in calls), f"the ranks do not agree: {calls}"
        yield values
        with job.change:
            self._leaving -= 1
            if not self._leaving:
                self._slots.clear()
                job.change.notify_all()
            else:
                job.wait_for(lambda: rank not in self._slots, name)

    def post(self, key: tuple[int, int, int], message: Message, sends: bool) -> None:
        """Bring a message's sender or receiver; ``key`` is source, destination, tag."""
        here, there = (self._sent, self._wanted) if sends else (self._wanted, self._sent)
        with self.job.change:
            others = there.get(key)
            if not others:
                here.setdefault(key, deque()).append(message)
                return
            other = others.popleft()
            source, target = (message, other) if sends else (other, message)
            assert source.buffer.nbytes == target.buffer.nbytes, (
                f"message {key}: {source.buffer.nbytes} bytes sent, {target.buffer.nbytes} expected"
            )
            flat(target.buffer).view(np.uint8)[...] = flat(source.buffer).view(np.uint8)
            source.done = target.done = True
            self.job.change.notify_all()
