"""ShardedHostSum: CGDP's accumulation for a divided update, after which the shared memory holds the updated weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

import torch
from torch import Tensor, nn

from bpt.engine.optim.weight_slices import WeightSlice, WeightSlices
from bpt.graph.part import slice_bounds
from bpt.parallel.cgdp.chunk_areas import ElementRange
from bpt.parallel.cgdp.host_sum import ChunkPiece, HostSum
from bpt.system.comm.base import Communicator


class ShardedHostSum(HostSum):
    """Sums the slices of this rank, and takes their updated weights in the place of the sums.

    On one host a rank sums its own slices only. On several hosts the ranks of each sum all elements, and the leaders
    reduce-scatter them, so that each host has the totals of its ranks' slices. Weights go the other way: each rank
    reports its own (``_UPDATED``), and the leaders gather those of all hosts (``_SPREAD``).

    No number is overwritten too early: a rank sums a piece only when all ranks have sent their next gradients of it,
    and these come from weights that they have read.

    Args:
        slices: those that this rank updates.
    """

    _UPDATED, _SPREAD = range(3, 5)
    num_flags = 5

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        comm: Communicator,
        device: torch.device,
        dtype: torch.dtype,
        slices: WeightSlices,
    ) -> None:
        super().__init__(parameters, comm, device, dtype)
        self._own = slices
        self._places = [0, *accumulate(self.leaders.allgather(self.host.size))]  # the first of each host, and the end

    def slices(self, piece: ChunkPiece) -> list[WeightSlice]:
        """Return this rank's slices of the parameters of ``piece``."""
        return [own for parameter in piece.parameters if (own := self._own.of(parameter))]

    def give_gradients(self, piece: ChunkPiece) -> None:
        """Give the slices of ``piece`` their gradients, which ``await_slices`` has waited for."""
        for own in self.slices(piece):
            own.value.grad = self._part(own).to(own.value.device, own.value.dtype)

    def await_slices(self, piece: ChunkPiece, turn: int) -> None:
        """Wait until this rank's slices of ``piece`` are summed over all ranks."""
        rank, flag = (0, self._TOTAL) if self.hosts > 1 else (self.host.rank, self._SUMMED)
        self._await_flag(rank, flag, piece, turn)

    def reduce(self, piece: ChunkPiece, turn: int) -> None:
        self._await(self._SUMMED, piece, turn)
        for row, counts, own in self._rows(piece):
            total = row[own].clone()
            self.leaders.Reduce_scatter(row.numpy(), total.numpy(), counts)
            row[own] = total
        self._tell(self._TOTAL, piece, turn)

    def put(self, piece: ChunkPiece, turn: int) -> None:
        """Put the updated weights of this rank's slices of ``piece`` where their gradients were."""
        for own in self.slices(piece):
            self._part(own).copy_(own.value.detach())
        self._tell(self._UPDATED, piece, turn)

    def spread(self, piece: ChunkPiece, turn: int) -> None:
        """Gather the updated weights of ``piece`` from all hosts; only the leaders call this."""
        self._await(self._UPDATED, piece, turn)
        for row, counts, own in self._rows(piece):
            self.leaders.Allgatherv(row[own].clone().numpy(), row.numpy(), counts)
        self._tell(self._SPREAD, piece, turn)

    def weights(self, piece: ChunkPiece, turn: int) -> list[Tensor]:
        """Return the weights of ``piece`` in the shapes of its parameters, as soon as all ranks have updated them."""
        if self.hosts > 1:
            self._await_flag(0, self._SPREAD, piece, turn)
        else:
            self._await(self._UPDATED, piece, turn)
        return [self.layout.view(self._total, parameter) for parameter in piece.parameters]

    def _slices(self, piece: ChunkPiece) -> Iterator[ElementRange]:
        if self.hosts > 1:
            yield from super()._slices(piece)
            return
        for own in self.slices(piece):
            first = self.layout.start(own.parameter)
            start, stop = own.elements
            yield ElementRange(first + start, first + stop)

    def _part(self, own: WeightSlice) -> Tensor:
        return self.layout.view(self._total, own.parameter).view(-1)[slice(*own.elements)]

    def _rows(self, piece: ChunkPiece) -> Iterator[tuple[Tensor, list[int], slice]]:
        """Yield each parameter's row of the sums, how many elements of it each host updates, and this host's."""
        for parameter in piece.parameters:
            row = self.layout.view(self._total, parameter).view(-1)
            starts = [*(start for start, _ in slice_bounds(row.numel(), self._places[-1])), row.numel()]
            bounds = [starts[place] for place in self._places]
            counts = [stop - start for start, stop in pairwise(bounds)]
            yield row, counts, slice(*bounds[self.leaders.rank : self.leaders.rank + 2])

    def _await_flag(self, rank: int, flag: int, piece: ChunkPiece, turn: int) -> None:
        self.window.wait(lambda: bool(self._flags[rank][flag, piece.slot] >= turn))
