"""Peer: every rank runs all layers on its own samples; of the split ones, its slice for everybody's samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from bpt.config.precision import array_of
from bpt.config.proto import bpt_pb2 as pb
from bpt.engine.split_pass import BlockPass, SplitBlock
from bpt.graph.layer_graph import LayerGraph
from bpt.graph.layer_spec import count
from bpt.graph.part import slice_bounds
from bpt.graph.share import Share
from bpt.nn.net import Net
from bpt.nn.pass_context import PassContext
from bpt.parallel.model_parallel.model_parallel import blocks
from bpt.parallel.model_parallel.split_layers import Bounds, message, pack_columns, room, sizes, unpack_columns
from bpt.system.comm.base import Communicator


class Peer:
    """Model-parallel layers among peers (MPI-FC, §5 and Fig. 6).

    "Each worker node directly sends its partition of calculated data to all other workers".

    Forward, the bottom of a block goes from samples to all (Allgatherv), every rank computes its slice of the top
    for the samples of all, and the top goes back from slices to samples (Alltoallv). Where the next layer is split
    again, the top stays in slices, and these go to all. Backward is the mirror image (Alltoallv, Reduce_scatter).
    To have a blob of S elements on each of k ranks, a rank sends S / k to each other one and receives
    (k - 1) S / k.

    Weight gradients are those of all samples of the group: only ranks of other groups have more to add.

    Args:
        net: holds this rank's part.
        device: where it computes.
        shards: the group: a rank's slice is the one of its rank here.
        shares_of: the shares that the ranks of the group have of a batch whose text says so many samples; any of them
            may be without samples.
    """

    leads = True

    def __init__(
        self, net: Net, device: torch.device, shards: Communicator, shares_of: Callable[[int], Sequence[Share]]
    ) -> None:
        self._graph = net.graph
        self._summed = net.context.precision.compute
        self._device = device
        self._shards = shards
        self._shares_of = shares_of

    def blocks(self, graph: LayerGraph, stages: Sequence[int]) -> Sequence[SplitBlock]:
        """Return the blocks of model-parallel layers."""
        return blocks(graph, pb.FcParameter.PEER, stages)

    def forward(self, call: BlockPass) -> None:
        """Run a block forward, on this rank's slice for everybody's samples."""
        block, values, context = call.block, call.state.values, call.state.context
        rows = self._rows(block, context)
        bottom = values[block.bottom]
        whole = self._slices_to_all(block, bottom, sum(rows)) if block.takes_slices else self._to_all(bottom, rows)
        start, stop = self._bounds(block.features)[self._shards.rank]
        sliced = replace(
            context,
            columns=Share(start, stop - start, block.features),
            split=lambda samples: Share.joined(self._parts(samples, context)),
            micro_batch=None,
        )
        top = call.run(whole, sliced)
        values[block.top] = top if block.keeps_slices else self._slices_to_samples(block, top, rows)

    def backward(self, call: BlockPass) -> None:
        """Run a block backward, on this rank's slice for everybody's samples."""
        block, rows, diff = call.block, self._rows(call.block, call.state.context), None
        if block.top in call.state.segments[call.segment.index].tops:
            diff = call.starting_diff()
            if diff is not None and not block.keeps_slices:
                diff = self._samples_to_slices(block, diff, rows)
        for edge, summand in call.run_back(diff).items():
            total = self._sum_for_slices(summand) if block.takes_slices else self._sum_for_samples(summand, rows)
            call.state.diffs[edge] = total

    def _parts(self, samples: int, context: PassContext) -> list[Share]:
        """Return each rank's samples now of a batch whose text says so many."""
        return [context.part_of(share) for share in self._shares_of(samples)]

    def _rows(self, block: SplitBlock, context: PassContext) -> list[int]:
        return [share.count for share in self._parts(self._graph.edges[block.bottom].shape[0], context)]

    def _bounds(self, features: int) -> Bounds:
        return slice_bounds(features, self._shards.size)

    def _arrived(self, received: Tensor) -> Tensor:
        return received.to(self._device, non_blocking=True)

    # Forward

    def _to_all(self, own: Tensor, rows: Sequence[int]) -> Tensor:
        features = own.shape[1:]
        whole = room(sum(rows) * count(features), own.dtype)
        self._shards.Allgatherv(message(own), array_of(whole), [r * count(features) for r in rows])
        return self._arrived(whole).view(sum(rows), *features)

    def _slices_to_all(self, block: SplitBlock, own: Tensor, rows: int) -> Tensor:
        features = self._graph.edges[block.bottom].shape[1]
        whole, bounds = room(rows * features, own.dtype), self._bounds(features)
        self._shards.Allgatherv(message(own), array_of(whole), sizes(rows, bounds))
        return unpack_columns(self._arrived(whole), rows, bounds)

    def _slices_to_samples(self, block: SplitBlock, top: Tensor, rows: Sequence[int]) -> Tensor:
        bounds, own = self._bounds(block.features), rows[self._shards.rank]
        received = room(own * block.features, top.dtype)
        sent = [r * top.shape[1] for r in rows]
        self._shards.Alltoallv(message(top), sent, array_of(received), sizes(own, bounds))
        return unpack_columns(self._arrived(received), own, bounds)

    # Backward

    def _samples_to_slices(self, block: SplitBlock, diff: Tensor, rows: Sequence[int]) -> Tensor:
        bounds = self._bounds(block.features)
        start, stop = bounds[self._shards.rank]
        received = room(sum(rows) * (stop - start), diff.dtype)
        counts = [r * (stop - start) for r in rows]
        sent = message(pack_columns(diff, bounds))
        self._shards.Alltoallv(sent, sizes(diff.shape[0], bounds), array_of(received), counts)
        return self._arrived(received).view(sum(rows), stop - start)

    def _sum_for_samples(self, summand: Tensor, rows: Sequence[int]) -> Tensor:
        features, own = summand.shape[1:], rows[self._shards.rank]
        total = room(own * count(features), self._summed)
        self._shards.Reduce_scatter(
            message(summand.to(total.dtype)), total.numpy(), [r * count(features) for r in rows]
        )
        return self._arrived(total.to(summand.dtype)).view(own, *features)

    def _sum_for_slices(self, summand: Tensor) -> Tensor:
        rows, bounds = summand.shape[0], self._bounds(summand.shape[1])
        start, stop = bounds[self._shards.rank]
        total = room(rows * (stop - start), self._summed)
        sent = message(pack_columns(summand.to(total.dtype), bounds))
        self._shards.Reduce_scatter(sent, total.numpy(), sizes(rows, bounds))
        return self._arrived(total.to(summand.dtype)).view(rows, stop - start)
