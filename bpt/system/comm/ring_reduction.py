"""Ring all-reduce, made of messages between neighbours (Patarasuk and Yuan 2009; Hybrid, section 3.2, Fig. 3).

The ranks form a ring, and the buffer is cut into as many pieces as there are ranks. First (reduce-scatter) each piece
goes once round the ring, from its rank on, and every rank adds its own numbers to it; the last one has the sum. Then
(all-gather) the sums go round once more. Each rank sends 2 (P - 1) / P of the buffer and receives as much; no
all-reduce can do with less. A rank always sends to the same neighbour.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

import numpy as np

from bpt.system.comm.base import Buffer, Counts, Request
from bpt.system.comm.pieces import Messages, flat, runs

CHUNK = 2**20  # bytes of a message: one is added, in the cache, while the next travels
AHEAD = 2  # the number of messages that have buffers before they are added
# With two ranks on different hosts each is both neighbours of the other. A library sends no long message before the
# receiver reports a free buffer, and this report waits behind all messages to the same rank. In turns, half of the
# bandwidth is lost. So these post buffers for all messages before they wait for the first, of this size at a time.
BLOCK = 2**26


def ring_allreduce(comm: Messages, buffer: Buffer) -> None:
    """Leave the sum over all ranks in ``buffer``, equal on all to the last bit; a collective call.

    Each element is summed in the order of the ring, from a rank on that depends on its position. It does not matter
    whether sends wait for their receivers.

    Args:
        comm: the ranks; nobody else may send messages with its tag here meanwhile.
        buffer: C-contiguous, of one shape and dtype on all ranks; of any dtype that numpy adds, also those which MPI
            cannot sum. Pieces differ by one element at most, and may be empty.
    """
    whole, is_pair = flat(buffer), comm.size == 2 and comm.spans_hosts
    step = max(1, BLOCK // whole.itemsize) if is_pair else max(1, whole.size)
    if comm.size > 1:
        for first in range(0, whole.size, step):
            block = whole[first : first + step]
            _Ring(comm, block, ahead=block.size if is_pair else AHEAD).run()


def ring_reduce_scatter(comm: Messages, buffer: Buffer, counts: Counts) -> Buffer:
    """Return this rank's run of the sum over all ranks, in the memory of ``buffer``; a collective call.

    The other runs of ``buffer`` are undefined afterwards.

    Args:
        counts: the number of elements of each rank's run.
    """
    ring = _Ring(comm, flat(buffer), _ahead(comm, buffer), _bounds(counts), first=1)
    ring.reduce_scatter(passes_on=False)
    return runs(buffer, counts)[comm.rank]


def ring_allgather(comm: Messages, buffer: Buffer, counts: Counts) -> None:
    """Give all ranks the runs of all; each has its own in ``buffer``. A collective call; see ring_reduce_scatter."""
    _Ring(comm, flat(buffer), _ahead(comm, buffer), _bounds(counts), first=1).allgather()


def _ahead(comm: Messages, buffer: Buffer) -> int:
    return buffer.size if comm.size == 2 and comm.spans_hosts else AHEAD


def _bounds(counts: Counts) -> list[int]:
    return [0, *accumulate(counts)]


class _Ring:
    """A ring of the pieces of ``whole``. In step s a rank receives piece ``rank - first - s``, and sends it on.

    Args:
        ahead: the number of messages that have buffers before they are added.
        bounds: of the pieces; by default all are equal.
        first: the distance of a rank from the one on which its piece starts.
    """

    def __init__(
        self, comm: Messages, whole: Buffer, ahead: int, bounds: Sequence[int] | None = None, first: int = 0
    ) -> None:
        self._comm = comm
        self._ahead = ahead
        self._first = first
        self._right, self._left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
        bounds = bounds or [whole.size * piece // comm.size for piece in range(comm.size + 1)]
        self._pieces = [list(_chunks(whole[first:last])) for first, last in pairwise(bounds)]
        self._sent: list[Request] = []

    def run(self) -> None:
        last = self._comm.size - 1
        self.reduce_scatter()
        # Sums overwrite sent pieces. But the other rank takes those of the last piece, which already travel,
        # only when it has reached this line, too.
        self._await_sent(but=len(self._piece(last)))
        passed_on = [chunk for step in range(last + 1, 2 * last) for chunk in self._piece(step)]
        self._take(passed_on, self._piece(2 * last))
        self._await_sent()

    def reduce_scatter(self, passes_on: bool = True) -> None:
        """Sum all pieces; this rank completes that of the last step.

        Args:
            passes_on: whether to send that, too; then sent messages are still under way afterwards.
        """
        last = self._comm.size - 1
        for chunk in self._piece(0):
            self._send(chunk)
        kept = 0 if passes_on else len(self._piece(last))
        self._add([chunk for step in range(1, last + 1) for chunk in self._piece(step)], kept)
        if not passes_on:
            self._await_sent()

    def allgather(self) -> None:
        """Send the piece that ``reduce_scatter`` completes on this rank round the ring, and receive those of others."""
        last = self._comm.size - 1
        for chunk in self._piece(last):
            self._send(chunk)
        passed_on = [chunk for step in range(last + 1, 2 * last) for chunk in self._piece(step)]
        self._take(passed_on, self._piece(2 * last))
        self._await_sent()

    def _piece(self, step: int) -> list[Buffer]:
        return self._pieces[(self._comm.rank - self._first - step) % self._comm.size]

    def _add(self, chunks: list[Buffer], kept: int = 0) -> None:
        """Add own numbers to the incoming pieces, and send them on, except for this number of the last chunks."""
        rooms = deque(np.empty_like(max(chunks, key=len)) for _ in chunks[: self._ahead])
        awaited, coming = iter(chunks), deque[tuple[Buffer, Buffer, Request]]()
        for number, chunk in enumerate(chunks):
            while rooms and (later := next(awaited, None)) is not None:
                room = rooms.popleft()
                coming.append((room, *self._receive(room[: later.size])))
            room, part, request = coming.popleft()
            request.Wait()
            np.add(chunk, part, out=chunk)
            rooms.append(room)
            if number < len(chunks) - kept:
                self._send(chunk)

    def _take(self, passed_on: list[Buffer], kept: list[Buffer]) -> None:
        """Copy the incoming sums, and send them on, except those that have been everywhere."""
        coming = [self._receive(chunk) for chunk in (*passed_on, *kept)]
        for number, (chunk, request) in enumerate(coming):
            request.Wait()
            if number < len(passed_on):
                self._send(chunk)

    def _send(self, chunk: Buffer) -> None:
        self._sent.append(self._comm.Isend(chunk, self._right))

    def _receive(self, chunk: Buffer) -> tuple[Buffer, Request]:
        return chunk, self._comm.Irecv(chunk, self._left)

    def _await_sent(self, but: int = 0) -> None:
        """Wait for all sent messages except this number of the last ones."""
        awaited = len(self._sent) - but
        for request in self._sent[:awaited]:
            request.Wait()
        del self._sent[:awaited]


def _chunks(piece: Buffer) -> Iterator[Buffer]:
    step = max(1, CHUNK // piece.itemsize)
    for first in range(0, piece.size, step):
        yield piece[first : first + step]
