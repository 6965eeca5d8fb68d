"""MasterSlave: one rank runs all layers but the split ones, whose slices the others hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from bpt.config.precision import array_of
from bpt.config.proto import bpt_pb2 as pb
from bpt.engine.instructions import ExchangePiece
from bpt.engine.split_pass import BlockPass, SplitBlock
from bpt.graph.layer_graph import LayerGraph
from bpt.graph.layer_spec import count
from bpt.graph.part import slice_bounds
from bpt.graph.share import Share
from bpt.graph.transfers import wants_diff
from bpt.nn.net import Net
from bpt.nn.pass_context import PassContext
from bpt.parallel.model_parallel.model_parallel import blocks
from bpt.parallel.model_parallel.piece_exchange import PieceExchange
from bpt.parallel.model_parallel.split_layers import (
    Bounds,
    joined,
    message,
    pack_columns,
    pieces_of,
    room,
    sizes,
    unpack_columns,
)

MASTER = 0


class MasterSlave:
    """Model-parallel layers of a master and K slaves (MPI-FC, Algorithms 1 and 2; the code numbers their steps).

    For a batch of B samples, n_b inputs and n_t outputs, B (K n_b + n_t) elements move in either direction of the
    pass (Table 1); backward B n_t, where the bottom wants no diff.

    Slaves execute the split layers only: they have no other blobs, no outputs and no loss.

    Args:
        net: holds this rank's part.
        device: where it computes.
        exchange: rank 0 is the master; the others hold the slices, in order. ``context.split`` of a slave tells the
            share of its master.
    """

    def __init__(self, net: Net, device: torch.device, exchange: PieceExchange) -> None:
        self._graph = net.graph
        self._net = net
        self._summed = net.context.precision.compute
        self._device = device
        self._exchange = exchange
        self._shards = exchange.comm

    @property
    def leads(self) -> bool:
        """Whether this rank is the master."""
        return self._shards.rank == MASTER

    def blocks(self, graph: LayerGraph, stages: Sequence[int]) -> Sequence[SplitBlock]:
        """Return the blocks of model-parallel layers."""
        return blocks(graph, pb.FcParameter.MASTER_SLAVE, stages)

    def forward(self, call: BlockPass) -> None:
        """Run a block forward, on the slaves' slices."""
        if self.leads:
            self._lead_forward(call)
        else:
            self._serve_forward(call)

    def backward(self, call: BlockPass) -> None:
        """Run a block backward, on the slaves' slices."""
        if self._runs_backward(call.block):
            (self._lead_backward if self.leads else self._serve_backward)(call)

    def _runs_backward(self, block: SplitBlock) -> bool:
        """Return whether a diff comes to the block's top, which slaves must know without seeing it."""
        needs = self._graph.nodes[block.start].needs_backward
        return needs and (wants_diff(self._graph, block.top) or bool(self._graph.edges[block.top].loss_weight))

    def _bounds(self, block: SplitBlock) -> Bounds:
        """Return the slices of the block's top; the master's is empty."""
        return [(0, 0), *slice_bounds(block.features, self._shards.size - 1)]

    def _lead_forward(self, call: BlockPass) -> None:
        """Run the master's side of Algorithm 1; set the block's top."""
        block, rows, values = call.block, self._rows(call), call.state.values
        bottoms, bounds = pieces_of(values[block.bottom], rows), self._bounds(block)

        def broadcast(piece: int) -> Callable[[], None]:
            sent = message(bottoms[piece])
            # 3: Broadcast bottom_vecs to slaves
            return lambda: self._shards.Bcast(sent, MASTER)

        def receive(piece: int, _: None) -> Callable[[], Tensor]:
            def exchange() -> Tensor:
                # 4: Recv sliced_top_vecs from slaves
                received = room(rows[piece] * block.features, self._net.precision.type_of(block.top))
                self._shards.Gatherv(message(received[:0]), array_of(received), sizes(rows[piece], bounds), MASTER)
                # 5: Merge sliced_top_vecs into top_vecs
                return unpack_columns(self._arrived(received), rows[piece], bounds)

            return exchange

        what = ExchangePiece(call.segment.index)
        tops = self._exchange.run(what, len(rows), broadcast, lambda piece, arrived: arrived, receive)
        values[block.top] = joined([top() for top in tops])

    def _serve_forward(self, call: BlockPass) -> None:
        """Run a slave's side of Algorithm 1."""
        block, context, rows = call.block, call.state.context, self._rows(call)
        _, *features = self._graph.edges[block.bottom].shape

        def receive(piece: int) -> Callable[[], Tensor]:
            def exchange() -> Tensor:
                # 7: Broadcast bottom_vecs from master
                received = room(rows[piece] * count(features), self._net.precision.type_of(block.bottom))
                self._shards.Bcast(array_of(received), MASTER)
                return self._arrived(received).view(rows[piece], *features)

            return exchange

        def compute(piece: int, bottom: Tensor) -> Tensor:
            # 8: Call Forward() on layer
            own = replace(context, split=lambda samples: self._pieces(samples, context)[piece], micro_batch=None)
            return call.run(bottom, own, len(rows))

        def send(piece: int, top: Tensor) -> Callable[[], None]:
            sent = message(top)
            # 9: Send sliced_top_vecs to master
            return lambda: self._shards.Gatherv(sent, None, sizes(rows[piece], self._bounds(block)), MASTER)

        for sent in self._exchange.run(ExchangePiece(call.segment.index), len(rows), receive, compute, send):
            sent()

    def _lead_backward(self, call: BlockPass) -> None:
        """Run the master's side of Algorithm 2; set the diff of the block's bottom."""
        block, diff, rows, bounds = call.block, call.starting_diff(), self._rows(call), self._bounds(call.block)
        assert diff is not None
        diffs, bottoms = pieces_of(diff, rows), pieces_of(call.state.values[block.bottom], rows)

        def send(piece: int) -> Callable[[], None]:
            # 3: Split top_vecs into sliced_top_vecs
            slices = message(pack_columns(diffs[piece], bounds))
            # 4: Send sliced_top_vecs to slaves
            return lambda: self._shards.Scatterv(slices, slices[:0], sizes(rows[piece], bounds), MASTER)

        def receive(piece: int, _: None) -> Callable[[], Tensor | None]:
            def exchange() -> Tensor:
                bottom = bottoms[piece]
                # 5: Reset diff's on bottom_vecs
                total = torch.zeros(bottom.numel(), dtype=self._summed)
                # 6: Recv & accumulate bottom_vecs from slaves
                self._shards.Reduce(total.numpy(), MASTER)
                return self._arrived(total.to(bottom.dtype)).view(bottom.shape)

            return exchange if wants_diff(self._graph, block.bottom) else lambda: None

        what = ExchangePiece(call.segment.index, diff=True)
        totals = self._exchange.run(what, len(rows), send, lambda piece, arrived: arrived, receive)
        if found := [total for total in (total() for total in totals) if total is not None]:
            call.state.diffs[block.bottom] = joined(found)

    def _serve_backward(self, call: BlockPass) -> None:
        """Run a slave's side of Algorithm 2; add to the gradients of its slice."""
        rows, bounds = self._rows(call), self._bounds(call.block)
        start, stop = bounds[self._shards.rank]

        def receive(piece: int) -> Callable[[], Tensor]:
            def exchange() -> Tensor:
                # 8: Recv sliced_top_vecs from master
                received = room(rows[piece] * (stop - start), self._net.precision.type_of(call.block.top))
                self._shards.Scatterv(None, array_of(received), sizes(rows[piece], bounds), MASTER)
                return self._arrived(received).view(rows[piece], stop - start)

            return exchange

        def send(piece: int, summand: Tensor | None) -> Callable[[], None]:
            if summand is None:
                return lambda: None
            sent = message(summand.to(self._summed))
            # 10: Send bottom_vecs to master
            return lambda: self._shards.Reduce(sent, MASTER)

        # 9: Call Backward() on layer
        what = ExchangePiece(call.segment.index, diff=True)
        left = self._exchange.run(what, len(rows), receive, lambda piece, diff: call.run_back(diff, piece), send)
        call.add_deferred_gradients()
        for sent in left:
            sent()

    def _pieces(self, samples: int, context: PassContext) -> list[Share]:
        """Return the samples of each piece of the current pass, of a batch whose text says so many."""
        return [share for (share,) in self._exchange.cut([context.share(samples)])]

    def _rows(self, call: BlockPass) -> list[int]:
        """Return the rows of each piece."""
        samples = self._graph.edges[call.block.bottom].shape[0]
        return [share.count for share in self._pieces(samples, call.state.context)]

    def _arrived(self, received: Tensor) -> Tensor:
        return received.to(self._device, non_blocking=True)
