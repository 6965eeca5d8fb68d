"""ThreadCommunicator: ranks that are threads of one process, to test with.

Stricter than MPI where MPI leaves room for mistakes: ranks that are in different collectives, or disagree about
counts, fail with an AssertionError; a ``Send`` always waits for its receiver; and nobody waits for ever.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np

from bpt.comm.base import Buffer, Cartesian, Communicator, Counts, Request, coordinates
from bpt.comm.counters import Counters
from bpt.errors import RunError

T = TypeVar("T")


class AnotherRankError(RunError):
    """Raised by the calls of ranks that are well, when another one is not."""


def run_ranks(size: int, function: Callable[[Communicator], T], timeout: float = 60.0) -> list[T]:
    """Call ``function`` once in each of ``size`` threads, each with its rank's communicator.

    Args:
        timeout: seconds after which ranks that have not come back are given up.

    Returns:
        What the calls returned, by rank.

    Raises:
        TimeoutError: a rank did not come back; the message says what each was waiting in.
        BaseException: what the first rank to fail raised.
    """
    job = _Job(timeout)
    group = _Group(size, job)
    results: dict[int, T] = {}

    def run(rank: int) -> None:
        try:
            results[rank] = function(ThreadCommunicator(rank, group, Counters()))
        except BaseException as error:
            job.fail(error)

    threads = [threading.Thread(target=run, args=(rank,), name=f"rank {rank}", daemon=True) for rank in range(size)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, job.deadline - time.monotonic()))
            if thread.is_alive():
                job.fail(TimeoutError(f"{thread.name} has not come back after {timeout:g} s; {job.describe()}"))
                break
    except BaseException as error:  # Ctrl-C
        job.fail(error)
        raise
    if job.error is not None:
        raise job.error
    return [results[rank] for rank in range(size)]


class _Job:
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


class _Message:
    """One side of a transfer, until the other side comes."""

    def __init__(self, buffer: Buffer, job: _Job, call: str) -> None:
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


class _Group:
    """What the ranks of one communicator share."""

    def __init__(self, size: int, job: _Job) -> None:
        self.size = size
        self.job = job
        self._slots: dict[int, tuple[Any, Any]] = {}
        self._leaving = 0
        self._sent: dict[tuple[int, int, int], deque[_Message]] = {}
        self._wanted: dict[tuple[int, int, int], deque[_Message]] = {}

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

    def post(self, key: tuple[int, int, int], message: _Message, sends: bool) -> None:
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
            _flat(target.buffer).view(np.uint8)[...] = _flat(source.buffer).view(np.uint8)
            source.done = target.done = True
            self.job.change.notify_all()


class ThreadCommunicator(Communicator):
    """One rank of a group of threads. Made by ``run_ranks``; sums are in order of rank."""

    def __init__(self, rank: int, group: _Group, counters: Counters) -> None:
        super().__init__(rank, group.size, counters)
        self._group = group

    def bcast(self, value: Any, root: int = 0) -> Any:
        with self._group.together(self.rank, ("bcast", root), value) as values:
            return values[root]

    def allgather(self, value: Any) -> list[Any]:
        with self._group.together(self.rank, ("allgather",), value) as values:
            return values

    def Split(self, color: int, key: int = 0) -> ThreadCommunicator:
        assert color >= 0
        colors = self.allgather((color, key))
        members = sorted((rank for rank in range(self.size) if colors[rank][0] == color), key=lambda r: colors[r][1])
        own = _Group(len(members), self._group.job)
        with self._group.together(self.rank, ("Split",), own) as groups:  # that of the first one counts
            return ThreadCommunicator(members.index(self.rank), groups[members[0]], self.counters)

    def Dup(self) -> ThreadCommunicator:
        return self.Split(0)

    def Create_cart(self, dims: Sequence[int]) -> Cartesian:
        return _Cartesian(self, tuple(dims))

    def Abort(self, status: int = 1) -> None:
        raise SystemExit(status)  # which run_ranks takes for the end of all

    def _Barrier(self) -> None:
        with self._group.together(self.rank, ("Barrier",), None):
            pass

    def _Bcast(self, buffer: Buffer, root: int) -> None:
        with self._together(("Bcast", root, buffer.size, buffer.dtype), buffer) as buffers:
            if self.rank != root:
                _flat(buffer)[...] = buffers[root]

    def _Reduce(self, buffer: Buffer, root: int) -> None:
        with self._together(("Reduce", root, buffer.size, buffer.dtype), buffer) as buffers:
            total = _sum(buffers) if self.rank == root else None
        if total is not None:
            _flat(buffer)[...] = total

    def _Allreduce(self, buffer: Buffer) -> None:
        with self._together(("Allreduce", buffer.size, buffer.dtype), buffer) as buffers:
            total = _sum(buffers)
        _flat(buffer)[...] = total

    def _Gatherv(self, send: Buffer, receive: Buffer | None, counts: Counts, root: int) -> None:
        assert len(counts) == self.size and send.size == counts[self.rank]
        with self._together(("Gatherv", root, tuple(counts), send.dtype), send) as buffers:
            if self.rank == root:
                assert receive is not None
                _flat(receive)[...] = np.concatenate(buffers)

    def _Scatterv(self, send: Buffer | None, receive: Buffer, counts: Counts, root: int) -> None:
        assert len(counts) == self.size and receive.size == counts[self.rank]
        with self._group.together(self.rank, ("Scatterv", root, tuple(counts), receive.dtype), send) as buffers:
            whole = buffers[root]
            assert whole is not None and whole.dtype == receive.dtype and whole.size == sum(counts)
            _flat(receive)[...] = _run(whole, counts, self.rank)

    def _Allgatherv(self, send: Buffer, receive: Buffer, counts: Counts) -> None:
        assert len(counts) == self.size and send.size == counts[self.rank] and receive.dtype == send.dtype
        with self._together(("Allgatherv", tuple(counts), send.dtype), send) as buffers:
            _flat(receive)[...] = np.concatenate(buffers)

    def _Alltoallv(self, send: Buffer, send_counts: Counts, receive: Buffer, receive_counts: Counts) -> None:
        assert len(send_counts) == len(receive_counts) == self.size
        assert send.size == sum(send_counts) and receive.size == sum(receive_counts)
        with self._group.together(self.rank, ("Alltoallv", send.dtype), (send, tuple(send_counts))) as sent:
            for source, (buffer, counts) in enumerate(sent):
                _run(receive, receive_counts, source)[...] = _run(buffer, counts, self.rank)

    def _Reduce_scatter(self, send: Buffer, receive: Buffer, counts: Counts) -> None:
        assert len(counts) == self.size and send.size == sum(counts) and receive.size == counts[self.rank]
        with self._together(("Reduce_scatter", tuple(counts), send.dtype), send) as buffers:
            _flat(receive)[...] = _sum([_run(buffer, counts, self.rank) for buffer in buffers])

    def _Isend(self, buffer: Buffer, dest: int, tag: int) -> Request:
        return self._post((self.rank, dest, tag), buffer, sends=True)

    def _Irecv(self, buffer: Buffer, source: int, tag: int) -> Request:
        return self._post((source, self.rank, tag), buffer, sends=False)

    def _post(self, key: tuple[int, int, int], buffer: Buffer, sends: bool) -> Request:
        source, dest, _ = key
        assert 0 <= source < self.size and 0 <= dest < self.size
        call = f"Send to {dest}" if sends else f"Recv from {source}"
        message = _Message(buffer, self._group.job, call)
        self._group.post(key, message, sends)
        return message

    @contextmanager
    def _together(self, call: tuple[object, ...], buffer: Buffer) -> Iterator[list[Buffer]]:
        with self._group.together(self.rank, call, _flat(buffer)) as buffers:
            yield buffers


class _Cartesian:
    """See Cartesian; its communicators are Splits."""

    def __init__(self, comm: ThreadCommunicator, dims: tuple[int, ...]) -> None:
        assert np.prod(dims) == comm.size
        self.coords = coordinates(comm.rank, dims)
        self._comm = comm.Dup()
        self._dims = dims

    def Sub(self, remain_dims: Sequence[bool]) -> Communicator:
        color = 0
        for place, extent, remains in zip(self.coords, self._dims, remain_dims, strict=True):
            color = color * extent + (0 if remains else place)
        return self._comm.Split(color)


def _flat(buffer: Buffer) -> Buffer:
    assert buffer.flags.c_contiguous
    return buffer.reshape(-1)


def _run(buffer: Buffer, counts: Counts, rank: int) -> Buffer:
    start = sum(counts[:rank])
    return _flat(buffer)[start : start + counts[rank]]


def _sum(buffers: Sequence[Buffer]) -> Buffer:
    total: Buffer = buffers[0].copy()
    for buffer in buffers[1:]:
        total += buffer
    return total
