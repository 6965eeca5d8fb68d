"""Peer: every rank runs all layers on its own samples; of the split ones, its slice for everybody's samples."""

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
from bpt.system.comm.base import Buffer


class Peer:
    """Model-parallel layers among peers (MPI-FC, §5 and Fig. 6).

    "Each worker node directly sends its partition of calculated data to all other workers".

    Forward, the bottom of a block goes from samples to all (Allgatherv), every rank computes its slice of the top
    for the samples of all, and the top goes back from slices to samples (Alltoallv). Where the next layer is split
    again, the top stays in slices, and these go to all. Backward is the mirror image (Alltoallv, Reduce_scatter).
    To have a blob of S elements on each of k ranks, a rank sends S / k to each other one and receives
    (k - 1) S / k.

    Weight gradients are those of all samples of the group: only ranks of other groups have more to add.

    Each piece of the batch has a part of the samples of every rank. Blobs that stay in slices have their rows piece by
    piece.

    Args:
        net: holds this rank's part.
        device: where it computes.
        exchange: of the group: a rank's slice is the one of its rank there.
        shares_of: the shares that the ranks of the group have of a batch whose text says so many samples; any of them
            may be without samples.
    """

    leads = True

    def __init__(
        self, net: Net, device: torch.device, exchange: PieceExchange, shares_of: Callable[[int], Sequence[Share]]
    ) -> None:
        self._graph = net.graph
        self._summed = net.context.precision.compute
        self._device = device
        self._exchange = exchange
        self._shards = exchange.comm
        self._shares_of = shares_of

    def blocks(self, graph: LayerGraph, stages: Sequence[int]) -> Sequence[SplitBlock]:
        """Return the blocks of model-parallel layers."""
        return blocks(graph, pb.FcParameter.PEER, stages)

    def forward(self, call: BlockPass) -> None:
        """Run a block forward, on this rank's slice for everybody's samples."""
        block, context, rows = call.block, call.state.context, self._rows(call)
        bottoms = pieces_of(call.state.values[block.bottom], self._held_rows(rows, block.takes_slices))
        start, stop = self._bounds(block.features)[self._shards.rank]
        sliced = replace(context, columns=Share(start, stop - start, block.features), micro_batch=None)

        def arrive(piece: int) -> Callable[[], Tensor]:
            to_all = self._slices_to_all if block.takes_slices else self._to_all
            return to_all(block, bottoms[piece], rows[piece])

        def compute(piece: int, whole: Tensor) -> Tensor:
            own = replace(sliced, split=lambda samples: Share.joined(self._pieces(samples, context)[piece]))
            return call.run(whole, own, len(rows))

        def leave(piece: int, top: Tensor) -> Callable[[], Tensor]:
            return (lambda: top) if block.keeps_slices else self._slices_to_samples(block, top, rows[piece])

        tops = self._exchange.run(ExchangePiece(call.segment.index), len(rows), arrive, compute, leave)
        call.state.values[block.top] = joined([top() for top in tops])

    def backward(self, call: BlockPass) -> None:
        """Run a block backward, on this rank's slice for everybody's samples."""
        block, rows = call.block, self._rows(call)
        diff = call.starting_diff() if block.top in call.left.pieces[0].tops else None
        diffs = [] if diff is None else pieces_of(diff, self._held_rows(rows, block.keeps_slices))

        def arrive(piece: int) -> Callable[[], Tensor | None]:
            if diff is None or block.keeps_slices:
                return lambda: diffs[piece] if diffs else None
            return self._samples_to_slices(block, diffs[piece], rows[piece])

        def leave(piece: int, summand: Tensor | None) -> Callable[[], Tensor | None]:
            if summand is None:
                return lambda: None
            return (self._sum_for_slices if block.takes_slices else self._sum_for_samples)(summand, rows[piece])

        what = ExchangePiece(call.segment.index, diff=True)
        totals = self._exchange.run(what, len(rows), arrive, lambda piece, diff: call.run_back(diff, piece), leave)
        call.add_deferred_gradients()
        found = [total for total in (total() for total in totals) if total is not None]
        if found:
            call.state.diffs[block.bottom] = joined(found)

    def _pieces(self, samples: int, context: PassContext) -> list[list[Share]]:
        """Return each rank's samples in each piece of the current pass, of a batch whose text says so many."""
        return self._exchange.cut([context.part_of(share) for share in self._shares_of(samples)])

    def _rows(self, call: BlockPass) -> list[list[int]]:
        """Return the rows of each rank in each piece."""
        samples = self._graph.edges[call.block.bottom].shape[0]
        return [[share.count for share in shares] for shares in self._pieces(samples, call.state.context)]

    def _held_rows(self, rows: Sequence[Sequence[int]], in_slices: bool) -> list[int]:
        """Return the rows here of each piece of a blob: those of all ranks if it is in slices."""
        return [sum(each) if in_slices else each[self._shards.rank] for each in rows]

    def _bounds(self, features: int) -> Bounds:
        return slice_bounds(features, self._shards.size)

    def _arrived(self, received: Tensor) -> Tensor:
        return received.to(self._device, non_blocking=True)

    # Each of these packs a blob, and returns its exchange. Forward:

    def _to_all(self, block: SplitBlock, own: Tensor, rows: Sequence[int]) -> Callable[[], Tensor]:
        features, sent = own.shape[1:], message(own)

        def exchange() -> Tensor:
            whole = room(sum(rows) * count(features), own.dtype)
            self._shards.Allgatherv(sent, array_of(whole), [r * count(features) for r in rows])
            return self._arrived(whole).view(sum(rows), *features)

        return exchange

    def _slices_to_all(self, block: SplitBlock, own: Tensor, rows: Sequence[int]) -> Callable[[], Tensor]:
        features, sent = self._graph.edges[block.bottom].shape[1], message(own)
        bounds = self._bounds(features)

        def exchange() -> Tensor:
            whole = room(sum(rows) * features, own.dtype)
            self._shards.Allgatherv(sent, array_of(whole), sizes(sum(rows), bounds))
            return unpack_columns(self._arrived(whole), sum(rows), bounds)

        return exchange

    def _slices_to_samples(self, block: SplitBlock, top: Tensor, rows: Sequence[int]) -> Callable[[], Tensor]:
        bounds, own, sent = self._bounds(block.features), rows[self._shards.rank], message(top)

        def exchange() -> Tensor:
            received = room(own * block.features, top.dtype)
            counts = [r * top.shape[1] for r in rows]
            self._shards.Alltoallv(sent, counts, array_of(received), sizes(own, bounds))
            return unpack_columns(self._arrived(received), own, bounds)

        return exchange

    # Backward:

    def _samples_to_slices(self, block: SplitBlock, diff: Tensor, rows: Sequence[int]) -> Callable[[], Tensor]:
        bounds = self._bounds(block.features)
        start, stop = bounds[self._shards.rank]
        sent = message(pack_columns(diff, bounds))

        def exchange() -> Tensor:
            received = room(sum(rows) * (stop - start), diff.dtype)
            counts = [r * (stop - start) for r in rows]
            self._shards.Alltoallv(sent, sizes(diff.shape[0], bounds), array_of(received), counts)
            return self._arrived(received).view(sum(rows), stop - start)

        return exchange

    def _sum_for_samples(self, summand: Tensor, rows: Sequence[int]) -> Callable[[], Tensor]:
        features, own = summand.shape[1:], rows[self._shards.rank]
        counts = [r * count(features) for r in rows]
        return self._sum(summand, message(summand.to(self._summed)), counts, (own, *features))

    def _sum_for_slices(self, summand: Tensor, rows: Sequence[int]) -> Callable[[], Tensor]:
        bounds = self._bounds(summand.shape[1])
        start, stop = bounds[self._shards.rank]
        sent = message(pack_columns(summand.to(self._summed), bounds))
        return self._sum(summand, sent, sizes(sum(rows), bounds), (sum(rows), stop - start))

    def _sum(self, summand: Tensor, sent: Buffer, counts: Sequence[int], shape: Sequence[int]) -> Callable[[], Tensor]:
        def exchange() -> Tensor:
            total = room(counts[self._shards.rank], self._summed)
            self._shards.Reduce_scatter(sent, total.numpy(), counts)
            return self._arrived(total.to(summand.dtype)).view(shape)

        return exchange
