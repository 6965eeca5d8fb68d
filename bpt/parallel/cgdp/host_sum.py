"""HostSum: CGDP's accumulation of gradients (section 3.1), in memory that the ranks of a host share.

``Cgdp`` (``exchange.py``) submits it to the thread of a stream of its own (``bpt/system/device/streams.py``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from bpt.base.errors import RunError
from bpt.parallel.cgdp.chunk_areas import (
    ALIGNMENT,
    ArrivedGradients,
    ElementRange,
    ForeignArea,
    GuardedArea,
    HostCopies,
    Layout,
    tensor_of,
)
from bpt.parallel.exchange.codec.base import Codec
from bpt.parallel.exchange.transport.transport import LIBRARY
from bpt.system.comm.base import Communicator
from bpt.system.comm.window import Window
from bpt.system.device import pin

SLICE = 2**14  # smallest number of elements that one rank gets as its slice


@dataclass(frozen=True)
class ChunkPiece:
    """The part of a chunk that is summed over one communicator.

    Attributes:
        sum: the HostSum that sums this piece.
        parameters: whose gradients these are.
        runs: where they stand in an area.
        slot: the index of its progress flags; no other piece has it at the same time.
        name: of its parameters, for the tables.
        names: of each.
    """

    sum: HostSum
    parameters: tuple[nn.Parameter, ...]
    runs: tuple[ElementRange, ...]
    slot: int
    name: str
    names: tuple[str, ...] = ()

    @property
    def nbytes(self) -> int:
        """The bytes of its gradients."""
        return sum(p.numel() * p.element_size() for p in self.parameters)


class HostSum:
    """Sums gradients in a window that the ranks of this host share: one area for each rank, and one for the sum.

    Ranks report their progress by flags in the window: for each piece the number of the last iteration in which a
    rank's gradients have arrived (``_ARRIVED``), its slice is summed (``_SUMMED``), and the sums of all hosts are
    there (``_TOTAL``). Numbers grow, so no flag is ever cleared. An area is never overwritten too early: a rank starts
    its next backward pass only after it has the sums of this iteration, and these are complete only when every rank
    has read its slice of every area.

    Each rank sums a slice of the elements, in order of rank; so sums are equal bit by bit on the ranks of a host, and
    on all hosts by the library's Allreduce.

    Args:
        parameters: all whose gradients are summed over ``comm``, in the order of the net.
        comm: used by nobody else.
        device: where the gradients are.
        dtype: of the sums; by default those of the parameters.
        codec: sums over hosts; ``None``: the library does.
    """

    _ARRIVED, _SUMMED, _TOTAL = range(3)
    num_flags: ClassVar[int] = 3  # of each piece

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        comm: Communicator,
        device: torch.device,
        dtype: torch.dtype | None = None,
        codec: Codec | None = None,
    ) -> None:
        self._codec = codec
        self.layout = Layout(parameters, dtype)
        self._slots = {id(parameter): slot for slot, parameter in enumerate(parameters)}
        self.host = comm.Split_type_shared()
        self.leads = self.host.rank == 0
        self.leaders = comm.Split(0 if self.leads else 1)  # one a host; the other group does nothing
        self.hosts: int = self.host.bcast(self.leaders.size)
        size = 8 * self.num_flags * len(parameters)
        flags = -(-size // ALIGNMENT) * ALIGNMENT
        self._has_total = self.host.size > 1  # else the one area there is becomes the total
        totals = self.layout.nbytes if self._has_total and self.leads else 0
        self.window = _window(self.host, flags + self.layout.nbytes + totals)
        self._flags, areas = [], []
        for rank in range(self.host.size):
            memory = self.window.Shared_query(rank)
            self._flags.append(memory[:size].view(np.int64).reshape(self.num_flags, -1))
            areas.append(tensor_of(memory[flags : flags + self.layout.nbytes], self.layout.dtype))
        first = self.window.Shared_query(0)
        self._total = tensor_of(first[flags + self.layout.nbytes :], self.layout.dtype)
        if not self._has_total:
            self._total = areas[0]
        mine = areas[self.host.rank]
        self._others = {rank: ForeignArea(area) for rank, area in enumerate(areas) if rank != self.host.rank}
        self._unpin = [pin(mine, device), pin(self._total, device)] if self._has_total else [pin(mine, device)]
        self.area = GuardedArea(mine, self.layout)

    def piece(self, parameters: Sequence[nn.Parameter], name: str, names: tuple[str, ...] = ()) -> ChunkPiece:
        """Return the gradients of ``parameters`` as one piece."""
        slot = min(self._slots[id(parameter)] for parameter in parameters)
        return ChunkPiece(self, tuple(parameters), self.layout.runs(parameters), slot, name, names)

    def accumulate(self, piece: ChunkPiece, copies: HostCopies, turn: int) -> None:
        """Sum this rank's slice of ``piece`` when all ranks' gradients have arrived (the paper's callback, B-3-1)."""
        copies.wait()  # B-2-0-1: not before the D2H stream has done its copies
        self._tell(self._ARRIVED, piece, turn)
        self._await(self._ARRIVED, piece, turn)
        with self.host.events.call("accumulate", 0, 0):
            if self._has_total:
                readers = self._readers(piece, copies, turn)
                for run in self._slices(piece):
                    self._sum(run, readers)
        self._tell(self._SUMMED, piece, turn)

    def reduce(self, piece: ChunkPiece, turn: int) -> None:
        """Sum ``piece`` over all hosts; only the leaders call this."""
        self._await(self._SUMMED, piece, turn)
        if self._codec:
            totals = (self.layout.view(self._total, parameter) for parameter in piece.parameters)
            self._codec.sum(dict(zip(piece.names, totals, strict=True)), self.leaders, LIBRARY)
        else:
            for start, stop in piece.runs:
                self.leaders.Allreduce(self._total[start:stop].numpy())
        self._tell(self._TOTAL, piece, turn)

    def totals(self, piece: ChunkPiece, turn: int) -> list[Tensor]:
        """Return the sums of ``piece`` in the shapes of its parameters, as soon as they are complete."""
        if self.hosts > 1:
            self.window.wait(lambda: bool(self._flags[0][self._TOTAL, piece.slot] >= turn))
        else:
            self._await(self._SUMMED, piece, turn)
        return [self.layout.view(self._total, parameter) for parameter in piece.parameters]

    def close(self) -> None:
        """Free the window; a collective call."""
        for unpin in self._unpin:
            unpin()
        self._flags.clear()
        self._others.clear()
        self.window.Free()
        self.leaders.Free()
        self.host.Free()

    def _slices(self, piece: ChunkPiece) -> Iterator[ElementRange]:
        """Yield this rank's elements of ``piece``: an equal part; a small piece is for one rank, in turn."""
        ranks = self.host.size
        for start, stop in piece.runs:
            used = max(1, min(ranks, (stop - start) // SLICE))
            place = (self.host.rank - piece.slot) % ranks
            if place < used:
                step = ALIGNMENT // self.layout.dtype.itemsize
                lines = (stop - start) // step
                first, last = place * lines // used, (place + 1) * lines // used
                yield ElementRange(start + first * step, start + last * step)

    def _readers(self, piece: ChunkPiece, copies: HostCopies, turn: int) -> list[HostCopies | ArrivedGradients]:
        """Return what reads each rank's gradients of ``piece``, each behind its own guard, in order of rank."""
        return [
            self._others[rank].read_after(partial(self._await_rank, rank, piece, turn))
            if rank in self._others
            else copies
            for rank in range(self.host.size)
        ]

    def _sum(self, run: ElementRange, readers: Sequence[HostCopies | ArrivedGradients]) -> None:
        target = self._total[run.start : run.stop]
        first, second, *others = (reader.elements(run) for reader in readers)
        torch.add(first, second, out=target)
        for other in others:
            target.add_(other)

    def _tell(self, flag: int, piece: ChunkPiece, turn: int) -> None:
        self.window.Sync()  # what the flag tells of comes before the flag
        self._flags[self.host.rank][flag, piece.slot] = turn
        self.window.Sync()

    def _await_rank(self, rank: int, piece: ChunkPiece, turn: int) -> None:
        self.window.wait(lambda: bool(self._flags[rank][self._ARRIVED, piece.slot] >= turn))

    def _await(self, flag: int, piece: ChunkPiece, turn: int) -> None:
        self.window.wait(lambda: all(flags[flag, piece.slot] >= turn for flags in self._flags))


def _window(host: Communicator, nbytes: int) -> Window:
    try:
        return host.Allocate_shared(nbytes)
    except RunError as error:
        raise RunError(f"{error}; or train with exchange: ALLREDUCE, which needs none") from error
