"""MasterSlave: one rank runs all layers but the split ones, whose slices the others hold."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from bpt.config.precision import array_of
from bpt.config.proto import bpt_pb2 as pb
from bpt.engine.split_pass import BlockPass, SplitBlock
from bpt.graph.layer_graph import LayerGraph
from bpt.graph.layer_spec import count
from bpt.graph.part import slice_bounds
from bpt.graph.transfers import wants_diff
from bpt.nn.net import Net
from bpt.nn.pass_context import PassContext
from bpt.parallel.model_parallel.model_parallel import blocks
from bpt.parallel.model_parallel.split_layers import Bounds, message, pack_columns, room, sizes, unpack_columns
from bpt.system.comm.base import Communicator

MASTER = 0


class MasterSlave:
    """Model-parallel layers of a master and K slaves (MPI-FC, Algorithms 1 and 2; the code numbers their steps).

    For a batch of B samples, n_b inputs and n_t outputs, B (K n_b + n_t) elements move in either direction of the
    pass (Table 1); backward B n_t, where the bottom wants no diff.

    Slaves execute the split layers only: they have no other blobs, no outputs and no loss.

    Args:
        net: holds this rank's part.
        device: where it computes.
        shards: rank 0 is the master; the others hold the slices, in order. ``context.split`` of a slave tells the
            share of its master.
    """

    def __init__(self, net: Net, device: torch.device, shards: Communicator) -> None:
        self._graph = net.graph
        self._net = net
        self._summed = net.context.precision.compute
        self._device = device
        self._shards = shards

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
            call.state.values[call.block.top] = self._lead_forward(call.block, call.state.values[call.block.bottom])
        else:
            self._serve_forward(call)

    def backward(self, call: BlockPass) -> None:
        """Run a block backward, on the slaves' slices."""
        if not self._runs_backward(call.block):
            call.state.segments.pop(call.segment.index, None)
        elif self.leads:
            self._lead_backward(call)
        else:
            self._serve_backward(call)

    def _runs_backward(self, block: SplitBlock) -> bool:
        """Return whether a diff comes to the block's top, which slaves must know without seeing it."""
        needs = self._graph.nodes[block.start].needs_backward
        return needs and (wants_diff(self._graph, block.top) or bool(self._graph.edges[block.top].loss_weight))

    def _bounds(self, block: SplitBlock) -> Bounds:
        """Return the slices of the block's top; the master's is empty."""
        return [(0, 0), *slice_bounds(block.features, self._shards.size - 1)]

    def _lead_forward(self, block: SplitBlock, bottom: Tensor) -> Tensor:
        """Run the master's side of Algorithm 1; return the block's top."""
        rows, bounds = bottom.shape[0], self._bounds(block)
        # 3: Broadcast bottom_vecs to slaves
        self._shards.Bcast(message(bottom), MASTER)
        # 4: Recv sliced_top_vecs from slaves
        received = room(rows * block.features, self._net.precision.type_of(block.top))
        self._shards.Gatherv(message(received[:0]), array_of(received), sizes(rows, bounds), MASTER)
        # 5: Merge sliced_top_vecs into top_vecs
        return unpack_columns(self._arrived(received), rows, bounds)

    def _serve_forward(self, call: BlockPass) -> None:
        """Run a slave's side of Algorithm 1."""
        rows, features = self._bottom_shape(call.block, call.state.context)
        # 7: Broadcast bottom_vecs from master
        received = room(rows * count(features), self._net.precision.type_of(call.block.bottom))
        self._shards.Bcast(array_of(received), MASTER)
        bottom = self._arrived(received).view(rows, *features)
        # 8: Call Forward() on layer
        top = call.run(bottom, call.state.context)
        # 9: Send sliced_top_vecs to master
        self._shards.Gatherv(message(top), None, sizes(rows, self._bounds(call.block)), MASTER)

    def _lead_backward(self, call: BlockPass) -> None:
        """Run the master's side of Algorithm 2; set the diff of the block's bottom."""
        block, diff = call.block, call.starting_diff()
        assert diff is not None
        bottom, bounds = call.state.values[block.bottom], self._bounds(block)
        # 3: Split top_vecs into sliced_top_vecs
        slices = message(pack_columns(diff, bounds))
        # 4: Send sliced_top_vecs to slaves
        self._shards.Scatterv(slices, slices[:0], sizes(bottom.shape[0], bounds), MASTER)
        if wants_diff(self._graph, block.bottom):
            # 5: Reset diff's on bottom_vecs
            total = torch.zeros(bottom.numel(), dtype=self._summed)
            # 6: Recv & accumulate bottom_vecs from slaves
            self._shards.Reduce(total.numpy(), MASTER)
            call.state.diffs[block.bottom] = self._arrived(total.to(bottom.dtype)).view(bottom.shape)

    def _serve_backward(self, call: BlockPass) -> None:
        """Run a slave's side of Algorithm 2; add to the gradients of its slice."""
        rows, _ = self._bottom_shape(call.block, call.state.context)
        bounds = self._bounds(call.block)
        start, stop = bounds[self._shards.rank]
        # 8: Recv sliced_top_vecs from master
        received = room(rows * (stop - start), self._net.precision.type_of(call.block.top))
        self._shards.Scatterv(None, array_of(received), sizes(rows, bounds), MASTER)
        diff = self._arrived(received).view(rows, stop - start)
        # 9: Call Backward() on layer
        bottom_diffs = call.run_back(diff)
        # 10: Send bottom_vecs to master
        for summand in bottom_diffs.values():
            self._shards.Reduce(message(summand.to(self._summed)), MASTER)

    def _bottom_shape(self, block: SplitBlock, context: PassContext) -> tuple[int, tuple[int, ...]]:
        """Return the number of rows here and the shape of a row of the block's bottom."""
        samples, *features = self._graph.edges[block.bottom].shape
        return context.share(samples).count, tuple(features)

    def _arrived(self, received: Tensor) -> Tensor:
        return received.to(self._device, non_blocking=True)
