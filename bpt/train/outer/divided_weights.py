"""DividedWeights: the flat weights of a whole net, cut up for the ranks of a worker and put together again."""

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
        span: of the blob in the whole buffer.
        shape: of the blob.
        slice: of it; ``None``: all.
        gives: whether this rank's values are the blob's; they are of one rank of those that hold the same.
    """

    span: slice
    shape: Shape
    slice: BlobSlice | None
    gives: bool

    def of(self, whole: Buffer) -> Buffer:
        """Return the piece's elements; shares memory with ``whole``."""
        blob = whole[self.span].reshape(self.shape)
        return blob[self.slice.index(blob.ndim)] if self.slice else blob

    @property
    def size(self) -> int:
        return count(self.slice.shape(self.shape) if self.slice else self.shape)


class DividedWeights:
    """Moves flat weights (or gradients) between a worker's leader, which has them whole, and all its ranks.

    The whole buffer is that of one process that holds the whole net, so a server need not know of ranks. The first
    replica's ranks trade pieces with the leader, and each tells those that hold the same in other replicas. A
    collective call, and so are the methods.

    Args:
        net: this rank's part of the training net.
        flat: of it.
        grid: the worker's ranks; the leader is the first.
        parts: what each rank of a replica holds of the net.

    Attributes:
        size: elements of the whole buffer.
    """

    def __init__(self, net: Net, flat: FlatWeights, grid: ProcessGrid, parts: Sequence[Part]) -> None:
        self._dtype = flat.dtype
        self._in_first = grid.replica == 0
        self._replica: Communicator = grid.in_replica.Dup()
        self._across: Communicator = grid.across_replicas.Dup()
        params = {param.index: param for param in net.graph.learnable}
        everybody = self._replica.allgather(flat.places)  # of equal replicas each tells the same
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
        """Return this rank's part of the leader's ``whole``, which other ranks need not have."""
        part = np.empty(self._elements[self._replica.rank], self._dtype)
        with self._replica.events.part_of(Activity.WITHIN):
            if self._in_first:
                self._replica.Scatterv(self._cut(whole), part, self._elements)
            if self._across.size > 1:
                self._across.Bcast(part)
        return part

    def gather(self, part: Buffer) -> Buffer:
        """Return on the leader the whole of what the ranks have; an empty buffer on the others."""
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
        """Return on the leader what the ranks of a replica hold, one behind the other; ``None`` on the others."""
        if self._replica.rank:
            return None
        assert whole is not None and whole.shape == (self.size,) and whole.dtype == self._dtype
        pieces = (piece for each in self._pieces for piece in each)
        return np.concatenate([piece.of(whole).reshape(-1) for piece in pieces] or [whole])

    def _runs(self, part: Buffer) -> Iterator[tuple[Buffer, _Piece]]:
        """Yield this rank's pieces in its buffer."""
        start = 0
        for piece in self._pieces[self._replica.rank]:
            yield part[start : start + piece.size], piece
            start += piece.size


def _piece(param: Param, span: slice, rank: int, parts: Sequence[Part]) -> _Piece:
    own = parts[rank].slice_of(param)
    return _Piece(span, param.shape, own, any(giver == rank for giver, _ in holders(param, parts)))
