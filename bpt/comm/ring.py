"""Ring all-reduce, made of messages between neighbours (Patarasuk and Yuan 2009; Hybrid, section 3.2, Fig. 3).

The ranks stand in a ring, and the buffer is cut into as many pieces as there are ranks. First (reduce-scatter) each
piece goes once round the ring, from its rank on, and every rank adds its own numbers to it; the last one has the sum.
Then (all-gather) the sums go round once more. Each rank sends 2 (P - 1) / P of the buffer and receives as much; no
all-reduce can do with less. And it sends always to the same neighbour.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from bpt.comm.base import Buffer, Request
from bpt.comm.pieces import Messages, flat

CHUNK = 2**20  # bytes of a message: one is added while the next is on its way, and stays in the cache for that


def ring_allreduce(comm: Messages, buffer: Buffer) -> None:
    """Leave the sum over all ranks in ``buffer``, equal on all to the last bit; a collective call.

    Each element is summed in the order of the ring, from a rank on that depends on where it stands. It does not matter
    whether sends wait for their receivers.

    Args:
        comm: nobody else may send messages with its tag here meanwhile.
        buffer: C-contiguous, of one shape and dtype on all ranks; of any dtype that numpy adds, also those which MPI
            cannot sum. Pieces differ by one element at most, and may be empty.
    """
    if comm.size > 1:
        _Ring(comm, buffer).run()


class _Ring:
    """One all-reduce. Piece p starts at rank p; in step s a rank receives piece ``rank - s``, and sends it on."""

    def __init__(self, comm: Messages, buffer: Buffer) -> None:
        self._comm = comm
        self._right, self._left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
        whole = flat(buffer)
        bounds = [whole.size * piece // comm.size for piece in range(comm.size + 1)]
        self._pieces = [list(_chunks(whole[first:last])) for first, last in pairwise(bounds)]
        self._sent: list[Request] = []

    def run(self) -> None:
        last = self._comm.size - 1  # step of the reduce-scatter; its piece is complete then
        for chunk in self._piece(0):
            self._send(chunk)
        self._add([chunk for step in range(1, last + 1) for chunk in self._piece(step)])
        # Sums are to overwrite what was sent. But those of the last piece, which are on their way already, the other
        # rank takes only when it has come to here, too.
        self._await_sent(but=len(self._piece(last)))
        passed_on = [chunk for step in range(last + 1, 2 * last) for chunk in self._piece(step)]
        self._take(passed_on, self._piece(2 * last))
        self._await_sent()

    def _piece(self, step: int) -> list[Buffer]:
        return self._pieces[(self._comm.rank - step) % self._comm.size]

    def _add(self, chunks: list[Buffer]) -> None:
        """Add own numbers to what comes, and send it on: the sums of the last piece, too."""
        rooms = [np.empty_like(max(chunks, key=len)) for _ in range(2)] if chunks else []
        coming: list[tuple[Buffer, Request]] = []
        for number, chunk in enumerate(chunks):
            if number == 0:
                coming.append(self._receive(rooms[0][: chunk.size]))
            if number + 1 < len(chunks):
                coming.append(self._receive(rooms[(number + 1) % 2][: chunks[number + 1].size]))
            room, request = coming.pop(0)
            request.Wait()
            np.add(chunk, room, out=chunk)
            self._send(chunk)

    def _take(self, passed_on: list[Buffer], kept: list[Buffer]) -> None:
        """Take over the sums that come, and send them on but for those that have been everywhere."""
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
        """Wait for all that was sent, but for so many of the last."""
        awaited = len(self._sent) - but
        for request in self._sent[:awaited]:
            request.Wait()
        del self._sent[:awaited]


def _chunks(piece: Buffer) -> Iterator[Buffer]:
    step = max(1, CHUNK // piece.itemsize)
    for first in range(0, piece.size, step):
        yield piece[first : first + step]
