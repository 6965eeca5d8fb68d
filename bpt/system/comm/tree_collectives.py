"""Reduction and broadcast along a binomial tree of the ranks, made of point-to-point messages.

At step s = 1, 2, 4, … the second of each two remaining ranks sends its sum to the first, which is s before it. On the
way back it gets the root's. So the root is rank 0, the tree is log2 P steps deep, any number of ranks is possible, and
each rank but the root sends its buffer up once. Caffe's devices (``-gpu 0,1,2,3``) do the same, which is OrigDP in the
CGDP paper (sections 1 and 2.3).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bpt.system.comm.base import Buffer, Request
from bpt.system.comm.pieces import Messages, flat

CHUNK = 2**20  # bytes of a message: one travels while the next is added, and inner ranks pass each one on at once


def parent_of(rank: int) -> int | None:
    """Return the rank to which a rank sends its sums: the rank without its lowest bit. The root, rank 0, has none."""
    return rank & (rank - 1) if rank else None


def children_of(rank: int, size: int) -> tuple[int, ...]:
    """Return the ranks that send their sums to a rank, of ``size`` ranks.

    The smallest subtree, which is ready first, comes first.
    """
    steps = (1 << bit for bit in range(size.bit_length()))
    return tuple(rank + step for step in steps if rank % (2 * step) == 0 and rank + step < size)


def tree_reduce(comm: Messages, buffer: Buffer) -> None:
    """Leave the sum over all ranks in the ``buffer`` of rank 0; a collective call.

    A rank adds the sums of its children to its own numbers, in their order. So sums are the same from run to run.

    Args:
        comm: the ranks; nobody else may send messages with its tag here meanwhile.
        buffer: C-contiguous, of one shape and dtype on all ranks. It is left with the sum over a rank's subtree.
    """
    parent, children = parent_of(comm.rank), children_of(comm.rank, comm.size)
    chunks = list(_chunks(flat(buffer)))
    coming = iter([(chunk, child) for chunk in chunks for child in children])
    rooms = [np.empty_like(chunks[0]) for _ in range(2)] if chunks and children else []
    ahead: list[tuple[Buffer, Request]] = []

    def receive() -> None:
        chunk, child = next(coming, (None, 0))
        if chunk is not None:
            room = rooms[0][: chunk.size]
            rooms.reverse()
            ahead.append((room, comm.Irecv(room, child)))

    receive()
    sent = []
    for chunk in chunks:
        for _ in children:
            receive()  # start the next one while this one arrives and is added
            room, request = ahead.pop(0)
            request.Wait()
            np.add(chunk, room, out=chunk)
        if parent is not None:
            sent.append(comm.Isend(chunk, parent))
    for request in sent:
        request.Wait()


def tree_bcast(comm: Messages, buffer: Buffer) -> None:
    """Overwrite ``buffer`` everywhere with that of rank 0; a collective call.

    The arguments are those of ``tree_reduce``.
    """
    parent, children = parent_of(comm.rank), children_of(comm.rank, comm.size)
    chunks = list(_chunks(flat(buffer)))
    coming = [] if parent is None else [comm.Irecv(chunk, parent) for chunk in chunks]
    sent = []
    for number, chunk in enumerate(chunks):
        if coming:
            coming[number].Wait()
        sent += [comm.Isend(chunk, child) for child in reversed(children)]
    for request in sent:
        request.Wait()


def _chunks(whole: Buffer) -> Iterator[Buffer]:
    step = max(1, CHUNK // whole.itemsize)
    for first in range(0, whole.size, step):
        yield whole[first : first + step]
