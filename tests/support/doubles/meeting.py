"""How ranks that are threads of one process meet: in collectives, in messages, and in the end of their job."""

from __future__ import annotations

import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from bpt.base.errors import LostRankError, RunError
from bpt.system.comm.base import Buffer
from bpt.system.comm.connectivity import lost_rank_error, name_of
from bpt.system.comm.pieces import flat

T = TypeVar("T")
U = TypeVar("U")


class AnotherRankError(RunError):
    """Raised by the calls of ranks that are well, when another one is not."""


class Job:
    """What all groups of one ``run_ranks`` share: the clock, the first failure, and the dead.

    Attributes:
        tolerant: whether ranks are to believe that the death of one leaves the others alone.
        dead: ranks of the job.
    """

    def __init__(self, timeout: float, tolerant: bool = False) -> None:
        self.tolerant = tolerant
        self.deadline = time.monotonic() + timeout
        self.change = threading.Condition()
        self.error: BaseException | None = None
        self.dead: set[int] = set()
        self.waiting: dict[int, str] = {}  # thread → who waits in what

    def fail(self, error: BaseException) -> None:
        with self.change:
            self.error = self.error or error
            self.change.notify_all()

    def lose(self, rank: int) -> None:
        with self.change:
            self.dead.add(rank)
            self.change.notify_all()

    def describe(self) -> str:
        return ", ".join(sorted(self.waiting.values())) or "none waits for another"

    def check(self, call: str, loss: LostRankError | None = None) -> None:
        """Raise why ``call`` cannot be completed, if it cannot; the lock is held.

        A loss that a rank sees itself comes before another rank's end by a loss: which of them is first is chance.
        """
        if loss is not None and (self.error is None or isinstance(self.error, LostRankError)):
            raise loss
        if self.error is not None:
            raise self._end_of(call)

    def _end_of(self, call: str) -> BaseException:
        """What a call raises when it cannot be completed any more: Abort leaves no rank alive."""
        if isinstance(self.error, SystemExit):
            return SystemExit(self.error.code)
        error = AnotherRankError(f"{call}: another rank failed")
        error.__cause__ = self.error
        return error

    def wait_for(self, done: Callable[[], object], call: str, lost: Callable[[], LostRankError | None]) -> None:
        """Wait until ``done``; the lock is held. Every wait of every group ends with the job.

        Args:
            lost: why it is in vain, if it is.
        """
        thread = threading.current_thread()
        self.waiting[id(thread)] = f"{thread.name} waits in {call}"
        arrived = self.change.wait_for(
            lambda: done() or self.error or lost(), timeout=max(0.0, self.deadline - time.monotonic())
        )
        if not done():
            if not arrived:
                self.error = self.error or TimeoutError(f"the ranks wait for each other: {self.describe()}")
                self.change.notify_all()
            loss = lost()
            if loss is not None:
                del self.waiting[id(thread)]
            self.check(call, loss)
        del self.waiting[id(thread)]


class Message:
    """One side of a transfer, until the other side comes.

    Args:
        peer: that other one.
    """

    def __init__(self, buffer: Buffer, group: Group, call: str, peer: int) -> None:
        self.buffer = buffer
        self.done = False
        self._group = group
        self._call = call
        self._peer = peer

    def Wait(self) -> None:
        with self._group.job.change:
            self._group.job.wait_for(lambda: self.done, self._call, self._lost)

    def Test(self) -> bool:
        job = self._group.job
        with job.change:
            if not self.done:
                job.check(self._call, self._lost())
            return self.done

    def _lost(self) -> LostRankError | None:
        return self._group.loss(self._call, self._peer)


@dataclass
class Survey:
    """A collective of the ranks that live; its end is settled when the last of them has come.

    Attributes:
        brought: rank → value.
        outcome: made of that, once.
    """

    call: str = ""
    brought: dict[int, Any] = field(default_factory=dict)
    outcome: Any = None


class Group:
    """What the ranks of one communicator share.

    Attributes:
        members: which ranks of the job they are.
        hosts: the host that each rank says it is on; None: that of this process.
        revoked: whether nothing but surveys can be called any more.
    """

    def __init__(self, members: Sequence[int], job: Job, hosts: Sequence[str] | None = None) -> None:
        self.members = members
        self.size = len(members)
        self.job = job
        self.hosts = hosts
        self.revoked = False
        self._survey = Survey()
        self._slots: dict[int, tuple[Any, Any]] = {}
        self._leaving = 0
        self._sent: dict[tuple[int, int, int], deque[Message]] = {}
        self._wanted: dict[tuple[int, int, int], deque[Message]] = {}

    @contextmanager
    def together(self, rank: int, call: tuple[object, ...], value: T) -> Iterator[list[T]]:
        """Meet all ranks, see what each has brought by rank, and part only when all have looked."""
        job, name = self.job, str(call[0])
        with job.change:
            job.check(name, self.loss(name))
            assert rank not in self._slots, f"rank {rank} is in two collectives of one communicator at once"
            self._slots[rank] = call, value
            if len(self._slots) == self.size:
                self._leaving = self.size
                job.change.notify_all()
            job.wait_for(lambda: self._leaving, name, lambda: self.loss(name))
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
                job.wait_for(lambda: rank not in self._slots, name, lambda: self.loss(name))

    def survey(self, rank: int, call: str, value: T, settle: Callable[[dict[int, T]], U]) -> U:
        """Wait for all ranks that live, and return what ``settle``, called once, makes of what they brought by rank."""
        job = self.job
        with job.change:
            job.check(call)
            survey = self._survey
            assert survey.call in ("", call), f"a rank is in {call}, others are in {survey.call}"
            survey.call = call
            survey.brought[rank] = value

            def is_settled() -> bool:
                if survey.outcome is None and survey.brought.keys() >= set(range(self.size)) - set(self.lost):
                    survey.outcome = settle(survey.brought)
                    self._survey = Survey()
                    job.change.notify_all()
                return survey.outcome is not None

            job.wait_for(is_settled, call, lambda: None)
            outcome: U = survey.outcome
            return outcome

    def loss(self, call: str, peer: int | None = None) -> LostRankError | None:
        """Why ``call`` cannot be completed here, or not with ``peer``; the lock is held."""
        lost = self.lost
        if not self.revoked and not (peer in lost if peer is not None else lost):
            return None
        hosts = self.hosts or [socket.gethostname()] * self.size
        return lost_rank_error(call, lost, [name_of(self.members[rank], hosts[rank]) for rank in lost])

    @property
    def lost(self) -> list[int]:
        """The ranks that are dead."""
        dead = self.job.dead
        return [rank for rank, member in enumerate(self.members) if member in dead] if dead else []

    def post(self, key: tuple[int, int, int], message: Message, sends: bool) -> None:
        """Bring a message's sender or receiver; ``key`` is source, destination, tag."""
        here, there = (self._sent, self._wanted) if sends else (self._wanted, self._sent)
        with self.job.change:
            others = there.get(key)
            if not others or self.loss("", key[1] if sends else key[0]):  # what a dead rank has left is not there
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
