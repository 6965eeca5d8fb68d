"""Buffers as runs of elements: the runs that a collective gives to each rank, and the pieces of a long message.

This file also waits for them, for any library that moves them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np

from bpt.system.comm.base import Buffer, Counts, Request

# MPI before version 4 counts elements and their offsets in 32 bits; some transports cannot send 2 GiB at once.
# Longer messages are sent in pieces of this size.
PIECE = 2**30
WORTH_MESSAGES = 2**16  # bytes


def flat(buffer: Buffer) -> Buffer:
    """Return all elements as one row, without a copy."""
    assert buffer.flags.c_contiguous
    return buffer.reshape(-1)


def runs(buffer: Buffer | None, counts: Counts) -> list[Buffer]:
    """Return the runs of ``counts`` elements that ``buffer`` consists of."""
    assert buffer is not None and buffer.size == sum(counts)
    return np.split(flat(buffer), np.cumsum(counts)[:-1])


def pieces(buffer: Buffer, most: int | None = None) -> Iterator[Buffer]:
    """Yield the buffer in runs of at most ``most`` bytes, or of PIECE; an empty one is one piece."""
    whole = flat(buffer)
    step = max(1, min(most or PIECE, PIECE) // whole.itemsize)
    for start in range(0, max(1, whole.size), step):
        yield whole[start : start + step]


def is_long(counts: Counts, dtype: np.dtype[Any]) -> bool:
    """Return whether runs of ``counts`` elements do not fit in one message."""
    return sum(counts) * dtype.itemsize > PIECE


def is_worth_messages(buffer: Buffer) -> bool:
    """Return whether a collective with sleeping waits is faster as messages than in a library."""
    return buffer.nbytes >= WORTH_MESSAGES


class MessagePiece(Protocol):
    """A library's request."""

    def Test(self) -> bool:
        """Return whether the request is done."""

    def Wait(self) -> object:
        """Return when the request is done; the library may use up the core until then."""


_abandoned: list[Sequence[MessagePiece]] = []
"""Requests without a waiter that are not done. Where a loss ends a collective, its caller forgets its messages,
while the library may still write into their buffers, which the requests keep alive."""


class Transfers:
    """The pieces of one message, as one request. After a failure it always fails; a library's would count as done.

    Args:
        requests: the requests of the pieces.
        longest_sleep: seconds that a wait sleeps at most (``await_``); 0.0: it does not sleep.
    """

    def __init__(self, requests: Sequence[MessagePiece], longest_sleep: float = 0.0) -> None:
        self._requests = requests
        self._longest_sleep = longest_sleep
        self._error: Exception | None = None
        self._done = False

    def __del__(self) -> None:
        if not self._done:
            _abandoned.append(self._requests)

    def Wait(self) -> None:
        with self._repeating_errors():
            for request in self._requests:  # Waitall would not report the error
                await_(request, self._longest_sleep) if self._longest_sleep else request.Wait()
        self._done = True

    def Test(self) -> bool:
        with self._repeating_errors():
            self._done = all(request.Test() for request in self._requests)
        return self._done

    @contextmanager
    def _repeating_errors(self) -> Iterator[None]:
        if self._error is not None:
            raise self._error
        try:
            yield
        except Exception as error:
            self._error = error
            raise


def drop_finished() -> None:
    """Drop abandoned requests that the library has finished, successfully or not."""
    for _ in range(len(_abandoned)):  # one by one, since other threads may abandon some meanwhile
        requests = _abandoned.pop(0)
        if not all(map(_has_ended, requests)):
            _abandoned.append(requests)


def await_(request: MessagePiece, longest_sleep: float) -> None:
    """Wait without using up the core. Sleeping adds an eighth to a wait at most, and the longest sleep."""
    start = time.perf_counter()
    while not request.Test():
        waited = time.perf_counter() - start
        time.sleep(min(waited / 8, longest_sleep))


def _has_ended(request: MessagePiece) -> bool:
    try:
        return request.Test()
    except Exception:  # a failed request has ended, too
        return True


class Messages(Protocol):
    """An object that sends messages to other ranks, all with one tag; a Communicator is one, too."""

    @property
    def rank(self) -> int:
        """The number of this rank."""

    @property
    def size(self) -> int:
        """The number of ranks."""

    @property
    def spans_hosts(self) -> bool:
        """Whether its ranks are on several hosts."""

    def Isend(self, buffer: Buffer, dest: int) -> Request:
        """Start to send ``buffer``, which must not change until ``Wait``."""

    def Irecv(self, buffer: Buffer, source: int) -> Request:
        """Start to receive into ``buffer``."""


def transfer(comm: Messages, sends: dict[int, Buffer], receives: dict[int, Buffer]) -> None:
    """Send to some ranks and receive from some. Both ends of a message know its size, and omit empty ones.

    Args:
        sends, receives: the buffer for each rank.
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
