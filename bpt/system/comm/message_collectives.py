"""MessageCommunicator: collectives made of messages, for libraries that lack them or make them slowly.

Sums are equal bit by bit on all ranks. Their order is that of a ring or a tree (``allreduce``).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bpt.base.errors import LostRankError, RunError
from bpt.system.comm import processes as room
from bpt.system.comm.base import MAX_TAG, Buffer, Communicator, Counts, Request
from bpt.system.comm.objects import allgather_objects, bcast_object
from bpt.system.comm.pieces import Messages, flat, runs, transfer
from bpt.system.comm.processes import Peers, ProcessWindow, Win, identity
from bpt.system.comm.ring_reduction import ring_allreduce
from bpt.system.comm.tree_collectives import children_of, tree_bcast, tree_reduce
from bpt.system.comm.window import Memory, Window, aligned

SHORT = 2**16  # bytes of a buffer: below, the number of messages determines the time of a sum
WORTH_A_RING = 2**18  # bytes of a rank's piece
_OWN_TAG = MAX_TAG + 1  # the tag of messages of this file's collectives


class MessageCommunicator(Communicator):
    """A communicator whose collectives consist of ``_Isend`` and ``_Irecv``, except those that a subclass overrides."""

    def Allocate_shared(self, nbytes: int) -> Window:
        ranks = self.allgather((self.host, identity(), nbytes))
        assert len({host for host, _, _ in ranks}) == 1, "ranks on several hosts cannot share memory"
        sizes, place = [size for _, _, size in ranks], room.shared_folder()
        if lack := self.bcast(room.shortage(sum(sizes), self.host, place)):
            raise RunError(lack)
        memory, win = self._shared_memory(sizes, place)
        if not all(self.allgather(room.reserve(memory[self.rank]))):  # no rank reads another's part before that
            raise RunError(room.refusal(sum(sizes), self.host, place))
        parts = [aligned(whole, size) for whole, size in zip(memory, sizes, strict=True)]
        peers = Peers({rank: process for rank, (_, process, _) in enumerate(ranks) if process != identity()})
        return ProcessWindow(parts, self._call, win, peers, self._loss_in_window)

    @abstractmethod
    def _shared_memory(self, sizes: Sequence[int], place: Path | None) -> tuple[Sequence[Memory], Win]:
        """Return memory that the ranks of this host share, longer by SLACK than ``sizes`` for each, and its window.

        Args:
            place: the folder of such memory, which has room; ``None`` if it is unknown.
        """

    @abstractmethod
    def _loss_in_window(self, gone: Sequence[int]) -> LostRankError | None:
        """Return why a wait is useless: these ranks are gone, or nobody may wait here any more."""

    def _bcast_object(self, value: Any, root: int) -> Any:
        return bcast_object(_FromRoot(self, root), value)

    def _allgather_objects(self, value: Any) -> list[Any]:
        return allgather_objects(_FromRoot(self), value)

    def _Agree(self, flag: int) -> int:
        return int(np.bitwise_and.reduce(self._allgather_objects(flag)))

    def _Barrier(self) -> None:
        self._Allreduce(np.zeros(1))

    def _Bcast(self, buffer: Buffer, root: int) -> None:
        tree_bcast(_FromRoot(self, root), buffer)

    def _Reduce(self, buffer: Buffer, root: int) -> None:
        turned = _FromRoot(self, root)
        changes = turned.rank and children_of(turned.rank, self.size)  # a buffer that is only sent does not change
        tree_reduce(turned, buffer.copy() if changes else buffer)

    def _Allreduce(self, buffer: Buffer) -> None:
        allreduce(_FromRoot(self), buffer)

    def _Gatherv(self, send: Buffer, receive: Buffer | None, counts: Counts, root: int) -> None:
        parts = runs(receive, counts) if self.rank == root else None
        transfer(_FromRoot(self), {root: flat(send)}, dict(enumerate(parts)) if parts is not None else {})

    def _Scatterv(self, send: Buffer | None, receive: Buffer, counts: Counts, root: int) -> None:
        parts = runs(send, counts) if self.rank == root else None
        transfer(_FromRoot(self), dict(enumerate(parts)) if parts is not None else {}, {root: flat(receive)})

    def _Allgatherv(self, send: Buffer, receive: Buffer, counts: Counts) -> None:
        own, parts = flat(send), runs(receive, counts)
        transfer(_FromRoot(self), dict.fromkeys(range(self.size), own), dict(enumerate(parts)))

    def _Alltoallv(self, send: Buffer, send_counts: Counts, receive: Buffer, receive_counts: Counts) -> None:
        sends, receives = runs(send, send_counts), runs(receive, receive_counts)
        transfer(_FromRoot(self), dict(enumerate(sends)), dict(enumerate(receives)))

    def _Reduce_scatter(self, send: Buffer, receive: Buffer, counts: Counts) -> None:
        """Receive this rank's run from all others at once, and add the runs in order of rank."""
        own = flat(receive)
        come = np.empty((self.size, own.size), own.dtype)
        transfer(_FromRoot(self), dict(enumerate(runs(send, counts))), dict(enumerate(come)))
        own[...] = come[0]
        for one in come[1:]:
            own += one


def allreduce(comm: Messages, buffer: Buffer) -> None:
    """Leave the sum over all ranks in ``buffer``; a collective call whose arguments are those of ``ring_allreduce``.

    P ranks send 2 P (P - 1) messages round a ring, and 2 (P - 1) along a tree. Within a host both move as many bytes,
    so the ring pays only for long pieces. Between hosts it loads each link least, which matters unless the buffer is
    SHORT.
    """
    if buffer.nbytes >= (SHORT if comm.spans_hosts else comm.size * WORTH_A_RING):
        ring_allreduce(comm, buffer)
    else:
        tree_reduce(comm, buffer)
        tree_bcast(comm, buffer)


class _FromRoot:
    """Messages of a communicator's own collectives, whose ranks are counted from the root on (``Messages``)."""

    def __init__(self, comm: Communicator, root: int = 0) -> None:
        self._comm = comm
        self._root = root
        self.size = comm.size
        self.rank = (comm.rank - root) % comm.size
        self.spans_hosts = comm.spans_hosts

    def Isend(self, buffer: Buffer, dest: int) -> Request:
        return self._comm._Isend(buffer, (dest + self._root) % self.size, _OWN_TAG)

    def Irecv(self, buffer: Buffer, source: int) -> Request:
        return self._comm._Irecv(buffer, (source + self._root) % self.size, _OWN_TAG)
