"""DividedWeights: divides the flat weights of a whole net among the ranks of a worker, and assembles them again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from bpt.graph.layer_graph import Param
from bpt.graph.layer_spec import Shape, count
from bpt.graph.part import BlobSlice, Part, holders
from bpt.nn.net import Net
from bpt.system.comm.base import Buffer, Communicator
from bpt.system.comm.grid import ProcessGrid
from bpt.system.events.event import Activity
from bpt.train.outer.flat_weights import FlatWeights


@dataclass(frozen=True)
class _Piece:
    """A blob, or a slice of one, that a rank holds.

    Attributes:
        span: the blob's range in the whole buffer.
        shape: the shape of the blob.
        slice: the slice of the blob; ``None``: all of it.
        gives: whether this rank provides the values; of the ranks with equal values only one does.
    """

    span: slice
    shape: Shape
    slice: BlobSlice | None
    gives: bool

    def of(self, whole: Buffer) -> Buffer:
        """Return the piece's elements, which share memory with ``whole``."""
        blob = whole[self.span].reshape(self.shape)
        return blob[self.slice.index(blob.ndim)] if self.slice else blob

    @property
    def size(self) -> int:
        return count(self.slice.shape(self.shape) if self.slice else self.shape)


class DividedWeights:
    """Moves flat weights (or gradients) between a worker's leader, which has all of them, and all its ranks.

    The whole buffer is that of a single process with the whole net, so a server need not know the ranks. The ranks of
    the first replica exchange pieces with the leader, and each sends its pieces to its counterparts in other replicas.
    The constructor and the methods are collective calls.

    Args:
        net: this rank's part of the training net.
        flat: the flat weights of this part.
        grid: the worker's ranks; the leader is the first.
        parts: the part of the net on each rank of a replica.

    Attributes:
        size: number of elements of the whole buffer.
    """

    def __init__(self, net: Net, flat: FlatWeights, grid: ProcessGrid, parts: Sequence[Part]) -> None:
        self._dtype = flat.dtype
        self._in_first = grid.replica == 0
        self._replica: Communicator = grid.in_replica.Dup()
        self._across: Communicator = grid.across_replicas.Dup()
        params = {param.index: param for param in net.graph.learnable}
        everybody = self._replica.allgather(flat.places)  # all replicas are equal
        places = sorted({(kept, index) for each in everybody for kept, index, _ in each})
        ends = list(accumulate(count(params[index].shape) for _, index in places))
        starts = [0, *ends]
        spans = {index: slice(start, end) for (_, index), start, end in zip(places, starts, ends, strict=False)}
        self.size = starts[-1]
        self._pieces = [
            [_piece(params[index], spans[index], rank, parts) for _, index, _ in each]
            for rank, each in enumerate(everybody)
        ]
        self._elements = [sum(piece.size for piece in each) for each in self._pieces]
        self._given = [sum(piece.size for piece in each if piece.gives) for each in self._pieces]

    def scatter(self, whole: Buffer | None) -> Buffer:
        """Return this rank's part of ``whole``, which only the leader has."""
        part = np.empty(self._elements[self._replica.rank], self._dtype)
        with self._replica.events.part_of(Activity.WITHIN):
            if self._in_first:
                self._replica.Scatterv(self._cut(whole), part, self._elements)
            if self._across.size > 1:
                self._across.Bcast(part)
        return part

    def gather(self, part: Buffer) -> Buffer:
        """Return the whole buffer, assembled from all ranks, on the leader, and an empty buffer on the others."""
        if not self._in_first:
            return np.empty(0, self._dtype)
        leads = self._replica.rank == 0
        send = np.concatenate([run for run, piece in self._runs(part) if piece.gives] or [part[:0]])
        received = np.empty(self.size if leads else 0, self._dtype)
        with self._replica.events.part_of(Activity.WITHIN):
            self._replica.Gatherv(send, received if leads else None, self._given)
        if not leads:
            return received
        whole, start = np.empty(self.size, self._dtype), 0
        for piece in (piece for each in self._pieces for piece in each if piece.gives):
            place = piece.of(whole)
            place[...] = received[start : start + piece.size].reshape(place.shape)
            start += piece.size
        return whole

    def _cut(self, whole: Buffer | None) -> Buffer | None:
        """Return the parts of a replica's ranks, one after the other, on the leader, and ``None`` on the others."""
        if self._replica.rank:
            return None
        assert whole is not None and whole.shape == (self.size,) and whole.dtype == self._dtype
        pieces = (piece for each in self._pieces for piece in each)
        return np.concatenate([piece.of(whole).reshape(-1) for piece in pieces] or [whole])

    def _runs(self, part: Buffer) -> Iterator[tuple[Buffer, _Piece]]:
        """Yield the range of each of this rank's pieces in its buffer, with the piece."""
        start = 0
        for piece in self._pieces[self._replica.rank]:
            yield part[start : start + piece.size], piece
            start += piece.size


def _piece(param: Param, span: slice, rank: int, parts: Sequence[Part]) -> _Piece:
    own = parts[rank].slice_of(param)
    return _Piece(span, param.shape, own, any(giver == rank for giver, _ in holders(param, parts)))
