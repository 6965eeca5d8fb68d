"""ThreadCommunicator: ranks that are threads of one process, to test with.

Stricter than MPI where MPI leaves room for mistakes: ranks that are in different collectives, or disagree about
counts, fail with an AssertionError; a ``Send`` always waits for its receiver; a ``wait`` looks again only after a
``Sync``; nothing that a dead rank has sent can still be received; and nobody waits for ever.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial, reduce
from operator import and_
from typing import Any, TypeVar

import numpy as np

from bpt.base.errors import LostRankError
from bpt.system.comm.base import Buffer, Communicator, Counts, Request
from bpt.system.comm.pieces import flat, runs
from bpt.system.comm.window import SLACK, Call, Memory, Window, aligned
from bpt.system.events.bus import EventBus
from bpt.system.events.flight_recorder import FlightRecorder
from tests.support.doubles.meeting import Group, Job, Message

T = TypeVar("T")


class Killed(BaseException):
    """What a rank raises to vanish without a word, as by SIGKILL."""


def run_ranks(
    size: int,
    function: Callable[[Communicator], T],
    timeout: float = 180.0,
    hosts: Sequence[str] | None = None,
    tolerant: bool = False,
) -> list[T]:
    """Call ``function`` once in each of ``size`` threads, each with its rank's communicator.

    A rank whose call raises Killed is dead from then on, and the others learn it as under fault tolerance.

    Args:
        timeout: seconds after which ranks that have not come back are given up.
        hosts: the host that each rank says it is on; only those of one host share memory. None: all are on this one.
        tolerant: whether the communicators say that fault tolerance is on.

    Returns:
        What the calls returned, in order of rank, but for those that were killed.

    Raises:
        TimeoutError: a rank did not come back; the message says what each was waiting in.
        BaseException: what the first rank to fail raised.
    """
    job = Job(timeout, tolerant)
    assert hosts is None or len(hosts) == size
    group = Group(range(size), job, hosts)
    results: dict[int, T] = {}

    def run(rank: int) -> None:
        try:
            results[rank] = function(ThreadCommunicator(rank, group, EventBus(rank, FlightRecorder())))
        except Killed:
            job.lose(rank)
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
    return [results[rank] for rank in sorted(results)]


class ThreadCommunicator(Communicator):
    """One rank of a group of threads. Made by ``run_ranks``; sums are in order of rank."""

    def __init__(self, rank: int, group: Group, events: EventBus) -> None:
        super().__init__(rank, group.size, events)
        self._group = group

    @property
    def world_ranks(self) -> Sequence[int]:
        return self._group.members

    @property
    def host(self) -> str:
        hosts = self._group.hosts
        return hosts[self.rank] if hosts else super().host

    @property
    def spans_hosts(self) -> bool:
        return len(set(self._group.hosts or ())) > 1

    def _bcast_object(self, value: Any, root: int) -> Any:
        with self._group.together(self.rank, ("bcast", root), value) as values:
            return values[root]

    def _allgather_objects(self, value: Any) -> list[Any]:
        with self._group.together(self.rank, ("allgather",), value) as values:
            return values

    def Split(self, color: int, key: int = 0) -> ThreadCommunicator:
        assert color >= 0
        colors = self.allgather((color, key))
        members = sorted((rank for rank in range(self.size) if colors[rank][0] == color), key=lambda r: colors[r][1])
        own = self._subgroup(members)
        with self._group.together(self.rank, ("Split",), own) as groups:  # that of the first one counts
            return self._adopt(ThreadCommunicator(members.index(self.rank), groups[members[0]], self.events))

    def Dup(self) -> ThreadCommunicator:
        return self.Split(0)

    def Free(self) -> None:
        with self._group.together(self.rank, ("Free",), None):
            del self._group  # nothing can be called any more

    def _Shrink(self) -> ThreadCommunicator:
        group = self._group
        with group.job.change:
            group.revoked = True
            group.job.change.notify_all()
        living, shrunk = group.survey(
            self.rank, "Shrink", None, lambda brought: (sorted(brought), self._subgroup(sorted(brought)))
        )
        return self._adopt(ThreadCommunicator(living.index(self.rank), shrunk, self.events))

    def _Revoke(self) -> None:
        if not hasattr(self, "_group"):
            return  # it has been freed
        with self._group.job.change:
            self._group.revoked = True
            self._group.job.change.notify_all()

    def loss(self) -> LostRankError | None:
        job = self._group.job
        with job.change:
            try:
                job.check("wait", self._group.loss("wait"))
            except LostRankError as loss:
                return loss
            return None

    def Split_type_shared(self) -> ThreadCommunicator:
        hosts = self._group.hosts
        return self.Split(hosts.index(hosts[self.rank]) if hosts else 0)

    def Allocate_shared(self, nbytes: int) -> Window:
        hosts = self._group.hosts or [""]
        assert len(set(hosts)) == 1, f"the ranks are on several hosts and cannot share memory: {', '.join(hosts)}"
        own = aligned(np.zeros(nbytes + SLACK, np.uint8), nbytes), _Beat()
        with self._group.together(self.rank, ("Allocate_shared",), own) as brought:
            parts, beat = [part for part, _ in brought], brought[0][1]
        return _ThreadWindow(parts, self._call, beat, self._group, self.rank)

    def describe(self) -> dict[str, str]:
        return super().describe() | {"fault tolerance": "on" if self._group.job.tolerant else "off"}

    def Abort(self, status: int = 1) -> None:
        if self._group.job.tolerant:
            raise Killed
        raise SystemExit(status)  # which run_ranks takes for the end of all

    def _Agree(self, flag: int) -> int:
        return self._group.survey(self.rank, "Agree", flag, lambda flags: reduce(and_, flags.values()))

    def _Barrier(self) -> None:
        with self._group.together(self.rank, ("Barrier",), None):
            pass

    def _Bcast(self, buffer: Buffer, root: int) -> None:
        with self._together(("Bcast", root, buffer.size, buffer.dtype), buffer) as buffers:
            if self.rank != root:
                flat(buffer)[...] = buffers[root]

    def _Reduce(self, buffer: Buffer, root: int) -> None:
        with self._together(("Reduce", root, buffer.size, buffer.dtype), buffer) as buffers:
            total = _sum(buffers) if self.rank == root else None
        if total is not None:
            flat(buffer)[...] = total

    def _Allreduce(self, buffer: Buffer) -> None:
        with self._together(("Allreduce", buffer.size, buffer.dtype), buffer) as buffers:
            total = _sum(buffers)
        flat(buffer)[...] = total

    def _Gatherv(self, send: Buffer, receive: Buffer | None, counts: Counts, root: int) -> None:
        assert len(counts) == self.size and send.size == counts[self.rank]
        with self._together(("Gatherv", root, tuple(counts), send.dtype), send) as buffers:
            if self.rank == root:
                assert receive is not None
                flat(receive)[...] = np.concatenate(buffers)

    def _Scatterv(self, send: Buffer | None, receive: Buffer, counts: Counts, root: int) -> None:
        assert len(counts) == self.size and receive.size == counts[self.rank]
        with self._group.together(self.rank, ("Scatterv", root, tuple(counts), receive.dtype), send) as buffers:
            whole = buffers[root]
            assert whole is not None and whole.dtype == receive.dtype and whole.size == sum(counts)
            flat(receive)[...] = runs(whole, counts)[self.rank]

    def _Allgatherv(self, send: Buffer, receive: Buffer, counts: Counts) -> None:
        assert len(counts) == self.size and send.size == counts[self.rank] and receive.dtype == send.dtype
        with self._together(("Allgatherv", tuple(counts), send.dtype), send) as buffers:
            flat(receive)[...] = np.concatenate(buffers)

    def _Alltoallv(self, send: Buffer, send_counts: Counts, receive: Buffer, receive_counts: Counts) -> None:
        assert len(send_counts) == len(receive_counts) == self.size
        assert send.size == sum(send_counts) and receive.size == sum(receive_counts)
        with self._group.together(self.rank, ("Alltoallv", send.dtype), (send, tuple(send_counts))) as sent:
            for source, (buffer, counts) in enumerate(sent):
                runs(receive, receive_counts)[source][...] = runs(buffer, counts)[self.rank]

    def _Reduce_scatter(self, send: Buffer, receive: Buffer, counts: Counts) -> None:
        assert len(counts) == self.size and send.size == sum(counts) and receive.size == counts[self.rank]
        with self._together(("Reduce_scatter", tuple(counts), send.dtype), send) as buffers:
            flat(receive)[...] = _sum([runs(buffer, counts)[self.rank] for buffer in buffers])

    def _Isend(self, buffer: Buffer, dest: int, tag: int) -> Request:
        return self._post((self.rank, dest, tag), buffer, sends=True)

    def _Irecv(self, buffer: Buffer, source: int, tag: int) -> Request:
        return self._post((source, self.rank, tag), buffer, sends=False)

    def _post(self, key: tuple[int, int, int], buffer: Buffer, sends: bool) -> Request:
        source, dest, _ = key
        assert 0 <= source < self.size and 0 <= dest < self.size
        call, peer = (f"Send to {dest}", dest) if sends else (f"Recv from {source}", source)
        message = Message(buffer, self._group, call, peer)
        self._group.post(key, message, sends)
        return message

    def _subgroup(self, ranks: Sequence[int]) -> Group:
        members, hosts = self._group.members, self._group.hosts
        return Group([members[rank] for rank in ranks], self._group.job, hosts and [hosts[rank] for rank in ranks])

    @contextmanager
    def _together(self, call: tuple[object, ...], buffer: Buffer) -> Iterator[list[Buffer]]:
        with self._group.together(self.rank, call, flat(buffer)) as buffers:
            yield buffers


class _Beat:
    """How often a rank has called Sync, for all that share a window."""

    def __init__(self) -> None:
        self.count = 0

    def is_beyond(self, count: int) -> bool:
        return self.count > count


class _ThreadWindow(Window):
    """Memory that threads share anyway; a Sync wakes those that wait, and nothing else does."""

    def __init__(self, parts: Sequence[Memory], call: Call, beat: _Beat, group: Group, rank: int) -> None:
        super().__init__(parts, call)
        self._beat = beat
        self._group = group
        self._rank = rank

    def Sync(self) -> None:
        change = self._group.job.change
        with change:
            self._beat.count += 1
            change.notify_all()

    def Free(self) -> None:
        with self._group.together(self._rank, ("Free",), None):
            self._parts = ()

    def _wait(self, done: Callable[[], bool]) -> None:
        job, beat = self._group.job, self._beat
        while True:
            seen = beat.count
            if done():  # not under the lock, so that it may take others
                return
            with job.change:
                job.wait_for(partial(beat.is_beyond, seen), "wait", partial(self._group.loss, "wait"))


def _sum(buffers: Sequence[Buffer]) -> Buffer:
    total: Buffer = buffers[0].copy()
    for buffer in buffers[1:]:
        total += buffer
    return total
