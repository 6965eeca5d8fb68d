"""CGDP with a divided update: a rank updates the slices that it has summed on the host (ZeRO-Offload, section 4)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn

from bpt.engine import instructions as do
from bpt.parallel.cgdp.exchange import Cgdp, Within
from bpt.parallel.cgdp.host_sum import ChunkPiece
from bpt.parallel.cgdp.sharded_host_sum import ShardedHostSum
from bpt.parallel.exchange.base import EXCHANGES
from bpt.parallel.sharded_update.sharded_allreduce import ShardedUpdate
from bpt.system.comm.base import Communicator
from bpt.system.device import StreamEvent


@EXCHANGES.register("sharded CGDP")
class ShardedCgdp(ShardedUpdate, Cgdp):
    """As CGDP, but weights come back from the host, and not sums of gradients.

    Step 4 of a chunk (see Cgdp) becomes: the rank's slices are updated, at once under ``update: HOST`` and with the
    others otherwise, and their weights replace their gradients in the memory that the ranks of a host share. From
    there the H2D stream copies the weights of all ranks, chunk by chunk, before the next forward pass needs them.
    """

    def _make_ready(self) -> None:
        self._coming: dict[int, StreamEvent] = {}  # segment → when its weights are there
        self._put: set[str] = set()  # the pieces whose weights are on the host already
        super()._make_ready()

    def _host_sum(self, parameters: Sequence[nn.Parameter], comm: Communicator, wire: torch.dtype) -> ShardedHostSum:
        return ShardedHostSum(parameters, comm, self.device, wire, self.slices)

    def start(self, segment: int) -> None:
        self._begin()
        super().start(segment)

    def _bring_back(self, within: Within, piece: ChunkPiece, turn: int, gradients: Sequence[Tensor]) -> None:
        with within():
            own = _sum_of(piece)
            own.await_slices(piece, turn)
            if self._early:
                own.give_gradients(piece)
                if self._update_early(own.slices(piece)):
                    own.put(piece, turn)
                    self._put.add(piece.name)

    def wait(self) -> None:
        super().wait()
        for piece in (piece for group in self._pieces for piece in group):
            if piece.name not in self._put:
                _sum_of(piece).give_gradients(piece)
            for parameter in piece.parameters:
                parameter.grad = None
        self._begun = False

    def updated(self) -> None:
        turn = self._turn - 1  # the one that has ended
        for piece in (piece for group in self._pieces for piece in group):
            if piece.name not in self._put:
                _sum_of(piece).put(piece, turn)
        self._put.clear()
        for segment in self._segments:
            for piece in self._pieces[segment]:
                within = partial(self._events.part_of, do.Gather(segment), piece.name)
                if piece.sum.hosts > 1 and piece.sum.leads:
                    self._h2d.after(self._between.submit(partial(_spread, within, piece, turn)))
                self._coming[segment] = self._h2d.submit(partial(self._fetch, within, piece, turn))

    def _fetch(self, within: Within, piece: ChunkPiece, turn: int) -> None:
        with within():
            weights = _sum_of(piece).weights(piece, turn)
            with self._copying(within, "H2D", piece.nbytes):
                for parameter, values in zip(piece.parameters, weights, strict=True):
                    parameter.detach().copy_(values, non_blocking=True)

    def gather(self, segment: int) -> None:
        if segment in self._coming:
            self._computing.after(self._coming.pop(segment))

    def close(self, failed: bool = False) -> None:
        if not failed:
            self.complete_weights()
        super().close(failed)


def _sum_of(piece: ChunkPiece) -> ShardedHostSum:
    assert isinstance(piece.sum, ShardedHostSum)
    return piece.sum


def _spread(within: Within, piece: ChunkPiece, turn: int) -> None:
    with within():
        _sum_of(piece).spread(piece, turn)
