"""MasterSlaveOperator: one rank runs all layers but the split ones, whose slices the others hold."""

from __future__ import annotations

import torch
from torch import Tensor

from bpt.execute.model_parallel import Bounds, ModelParallelOperator, apart, message, room, sizes, together
from bpt.graph.model_parallel import Block
from bpt.graph.part import slice_bounds
from bpt.graph.spec import count
from bpt.graph.transfers import wants_diff
from bpt.proto import bpt_pb2 as pb

MASTER = 0


class MasterSlaveOperator(ModelParallelOperator):
    """Model-parallel layers of a master and K slaves (MPI-FC, Algorithms 1 and 2; their steps stand in the code).

    For a batch of B samples, n_b inputs and n_t outputs, B (K n_b + n_t) elements move in either direction of the
    pass (Table 1); backward B n_t, where the bottom wants no diff.

    Slaves execute the split layers only: they have no other blobs, no outputs and no loss.

    Args:
        shards: rank 0 is the master; the others hold the slices, in order. ``context.split`` of a slave tells the
            share of its master.
    """

    scheme = pb.FcParameter.MASTER_SLAVE

    @property
    def is_master(self) -> bool:
        """Whether this rank runs all layers but the split ones."""
        return self.shards.rank == MASTER

    def forward(self, index: int, grad: bool = True) -> None:
        block = self._blocks.get(index)
        if block is None:
            if self.is_master:
                super().forward(index, grad)
        elif self.is_master:
            self.values[block.top] = self._lead_forward(block)
        else:
            self._serve_forward(index, block, grad)

    def backward(self, index: int) -> None:
        block = self._blocks.get(index)
        if block is None:
            if self.is_master:
                super().backward(index)
        elif not self._runs_backward(block):
            self._states.pop(index, None)
        elif self.is_master:
            self._lead_backward(block)
        else:
            self._serve_backward(index, block)

    def loss(self) -> Tensor:
        """As LocalOperator's; 0 on a slave."""
        return super().loss() if self.is_master else torch.zeros((), device=self.device)

    def _runs_backward(self, block: Block) -> bool:
        """Whether a diff comes to the block's top: slaves must know without seeing it."""
        graph = self.net.graph
        needs = graph.nodes[block.start].needs_backward
        return needs and (wants_diff(graph, block.top) or bool(graph.edges[block.top].loss_weight))

    def _bounds(self, block: Block) -> Bounds:
        """The slices of the block's top; the master's is empty."""
        return [(0, 0), *slice_bounds(block.features, self.shards.size - 1)]

    def _lead_forward(self, block: Block) -> Tensor:
        """Algorithm 1, the master's side: returns the block's top."""
        bottom = self.values[block.bottom]
        rows, bounds = bottom.shape[0], self._bounds(block)
        # 3: Broadcast bottom_vecs to slaves
        self.shards.Bcast(message(bottom), MASTER)
        # 4: Recv sliced_top_vecs from slaves
        received = room(rows * block.features)
        self.shards.Gatherv(room(0).numpy(), received.numpy(), sizes(rows, bounds), MASTER)
        # 5: Merge sliced_top_vecs into top_vecs
        return together(self._to_device(received), rows, bounds)

    def _serve_forward(self, index: int, block: Block, grad: bool) -> None:
        """Algorithm 1, a slave's side."""
        rows, features = self._bottom_shape(block)
        # 7: Broadcast bottom_vecs from master
        received = room(rows * count(features))
        self.shards.Bcast(received.numpy(), MASTER)
        bottom = self._to_device(received).view(rows, *features)
        # 8: Call Forward() on layer
        top = self._run(index, {block.bottom: bottom}, grad)[block.top]
        # 9: Send sliced_top_vecs to master
        self.shards.Gatherv(message(top), None, sizes(rows, self._bounds(block)), MASTER)

    def _lead_backward(self, block: Block) -> None:
        """Algorithm 2, the master's side: sets the diff of the block's bottom."""
        diff = self._starting_diff(block.top, self.values[block.top])
        assert diff is not None
        bottom, bounds = self.values[block.bottom], self._bounds(block)
        # 3: Split top_vecs into sliced_top_vecs
        slices = message(apart(diff, bounds))
        # 4: Send sliced_top_vecs to slaves
        self.shards.Scatterv(slices, room(0).numpy(), sizes(bottom.shape[0], bounds), MASTER)
        if wants_diff(self.net.graph, block.bottom):
            # 5: Reset diff's on bottom_vecs
            total = torch.zeros(bottom.numel())
            # 6: Recv & accumulate bottom_vecs from slaves
            self.shards.Reduce(total.numpy(), MASTER)
            self.diffs[block.bottom] = self._to_device(total).view(bottom.shape)

    def _serve_backward(self, index: int, block: Block) -> None:
        """Algorithm 2, a slave's side: adds to the gradients of its slice."""
        rows, _ = self._bottom_shape(block)
        bounds = self._bounds(block)
        start, stop = bounds[self.shards.rank]
        # 8: Recv sliced_top_vecs from master
        received = room(rows * (stop - start))
        self.shards.Scatterv(None, received.numpy(), sizes(rows, bounds), MASTER)
        diff = self._to_device(received).view(rows, stop - start)
        # 9: Call Backward() on layer
        bottom_diffs = self._run_back(index, {block.top: diff})
        # 10: Send bottom_vecs to master
        for summand in bottom_diffs.values():
            self.shards.Reduce(message(summand), MASTER)

    def _bottom_shape(self, block: Block) -> tuple[int, tuple[int, ...]]:
        """Rows here and shape of a row of the block's bottom."""
        samples, *features = self.net.graph.edges[block.bottom].shape
        return self.net.context.split(samples).count, tuple(features)
