"""Buffers as runs of elements: the runs that a collective gives to each rank, and the pieces of a long message.

And how to wait for those, whatever library moves them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np

from bpt.system.comm.base import Buffer, Counts, Request

# MPI before version 4 counts elements, and where they lie, in 32 bits; some transports cannot send 2 GiB at once.
# Longer messages go in pieces of so many bytes.
PIECE = 2**30
WORTH_MESSAGES = 2**16  # bytes


def flat(buffer: Buffer) -> Buffer:
    """Return all elements in one row, without a copy."""
    assert buffer.flags.c_contiguous
    return buffer.reshape(-1)


def runs(buffer: Buffer | None, counts: Counts) -> list[Buffer]:
    """Return the runs of ``counts`` elements that ``buffer`` consists of."""
    assert buffer is not None and buffer.size == sum(counts)
    return np.split(flat(buffer), np.cumsum(counts)[:-1])


def pieces(buffer: Buffer) -> Iterator[Buffer]:
    """Yield the buffer in runs of at most PIECE bytes; an empty one is one piece."""
    whole = flat(buffer)
    step = max(1, PIECE // whole.itemsize)
    for start in range(0, max(1, whole.size), step):
        yield whole[start : start + step]


def is_long(counts: Counts, dtype: np.dtype[Any]) -> bool:
    """Return whether runs of ``counts`` elements do not go in one message."""
    return sum(counts) * dtype.itemsize > PIECE


def is_worth_messages(buffer: Buffer) -> bool:
    """Return whether a collective that sleeps while it waits is better made of messages than left to a library."""
    return buffer.nbytes >= WORTH_MESSAGES


class MessagePiece(Protocol):
    """A library's request."""

    def Test(self) -> bool:
        """Return whether it is done."""

    def Wait(self) -> object:
        """Return when it is done; the library may use up the core until then."""


_abandoned: list[Sequence[MessagePiece]] = []
"""What nobody waits for any more, and is not done: where a loss ends a collective, its caller forgets its messages,
while the library may still write into their buffers, which its requests keep."""


class Transfers:
    """The pieces of one message, as one request. Once it has failed, it fails: a library's would count as done.

    Args:
        patient: whether to sleep while it waits, see ``await_``.
    """

    def __init__(self, requests: Sequence[MessagePiece], patient: bool) -> None:
        self._requests = requests
        self._patient = patient
        self._error: Exception | None = None
        self._done = False

    def __del__(self) -> None:
        if not self._done:
            _abandoned.append(self._requests)

    def Wait(self) -> None:
        """See Request."""
        with self._remembered():
            for request in self._requests:  # not Waitall: that would not say what went wrong
                await_(request) if self._patient else request.Wait()
        self._done = True

    def Test(self) -> bool:
        """See Request."""
        with self._remembered():
            self._done = all(request.Test() for request in self._requests)
        return self._done

    @contextmanager
    def _remembered(self) -> Iterator[None]:
        if self._error is not None:
            raise self._error
        try:
            yield
        except Exception as error:
            self._error = error
            raise


def forget_what_has_ended() -> None:
    """Let go of what was abandoned and the library is through with, in good order or not."""
    for _ in range(len(_abandoned)):  # one by one, since other threads may abandon some meanwhile
        requests = _abandoned.pop(0)
        if not all(map(_has_ended, requests)):
            _abandoned.append(requests)


def await_(request: MessagePiece) -> None:
    """Wait without using up the core; sleeping adds an eighth to a wait at most, and half a millisecond."""
    start = time.perf_counter()
    while not request.Test():
        waited = time.perf_counter() - start
        time.sleep(min(waited / 8, 5e-4))


def _has_ended(request: MessagePiece) -> bool:
    try:
        return request.Test()
    except Exception:  # it has failed, and that is an end
        return True


class Messages(Protocol):
    """Who sends messages to other ranks, all with one tag; a Communicator, too."""

    @property
    def rank(self) -> int:
        """This one's."""

    @property
    def size(self) -> int:
        """Number of ranks."""

    @property
    def spans_hosts(self) -> bool:
        """See Communicator."""

    def Isend(self, buffer: Buffer, dest: int) -> Request:
        """See Communicator."""

    def Irecv(self, buffer: Buffer, source: int) -> Request:
        """See Communicator."""


def transfer(comm: Messages, sends: dict[int, Buffer], receives: dict[int, Buffer]) -> None:
    """Send to some ranks and receive from some; both ends of a message know its size, and leave out empty ones.

    Args:
        sends, receives: rank → what it gets or gives.
    """
    rank, size = comm.rank, comm.size
    if rank in sends and rank in receives:
        receives.pop(rank)[...] = sends.pop(rank)
    # Each rank starts with its next neighbour, so that not all send to the same one first.
    turned = [(rank + step) % size for step in range(1, size)]
    sources = [other for other in reversed(turned) if other in receives and receives[other].size]
    targets = [other for other in turned if other in sends and sends[other].size]
    requests = [comm.Irecv(receives[other], other) for other in sources]
    requests += [comm.Isend(sends[other], other) for other in targets]
    for request in requests:
        request.Wait()
