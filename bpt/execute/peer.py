"""PeerOperator: every rank runs all layers on its own samples; of the split ones, its slice for everybody's samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from bpt.comm.base import Communicator
from bpt.execute.model_parallel import Bounds, ModelParallelOperator, apart, message, room, sizes, together
from bpt.graph.model_parallel import Block
from bpt.graph.part import slice_bounds
from bpt.graph.segments import Segment
from bpt.graph.spec import count
from bpt.net import Net
from bpt.proto import bpt_pb2 as pb
from bpt.share import Share


class PeerOperator(ModelParallelOperator):
    """Model-parallel layers among peers (MPI-FC, §5 and Fig. 6): "each worker node directly sends its partition of
    calculated data to all other workers".

    Forward, the bottom of a block goes from samples to all (Allgatherv), every rank computes its slice of the top
    for the samples of all, and the top goes back from slices to samples (Alltoallv). Where the next layer is split
    again, the top stays in slices, and these go to all. Backward is the mirror image (Alltoallv, Reduce_scatter).
    To have a blob of S elements on each of k ranks, a rank sends S / k to each other one and receives
    (k - 1) S / k.

    Weight gradients are those of all samples of the group: only ranks of other groups have more to add.

    Args:
        shards: the group: a rank's slice is the one of its rank here.
        rows_of: the number of samples that each rank of the group has of a batch whose text says so many; any of
            them may be 0.
    """

    scheme = pb.FcParameter.PEER

    def __init__(
        self,
        net: Net,
        segments: Sequence[Segment],
        device: torch.device | str = "cpu",
        engine: int = pb.SolverParameter.CONTIGUOUS,
        *,
        shards: Communicator,
        rows_of: Callable[[int], Sequence[int]],
    ) -> None:
        super().__init__(net, segments, device, engine, shards=shards)
        self._rows_of = rows_of

    def forward(self, index: int, grad: bool = True) -> None:
        block = self._blocks.get(index)
        if block is None:
            super().forward(index, grad)
            return
        bottom = self._slices_to_all(block) if block.takes_slices else self._samples_to_all(block)
        start, stop = self._bounds(block.features)[self.shards.rank]
        columns = Share(start, stop - start, block.features)
        with self.net.context.on_slice(columns, self._share_of_group()):
            top = self._run(index, {block.bottom: bottom}, grad)[block.top]
        self.values[block.top] = top if block.keeps_slices else self._slices_to_samples(block, top)

    def backward(self, index: int) -> None:
        block = self._blocks.get(index)
        if block is None:
            super().backward(index)
            return
        diff = None
        if block.top in self._states[index].tops:
            diff = self._starting_diff(block.top, self.values[block.top])
            if diff is not None and not block.keeps_slices:
                diff = self._samples_to_slices(block, diff)
        sum_up = self._sum_for_slices if block.takes_slices else self._sum_for_samples
        for edge, summand in self._run_back(index, {block.top: diff}).items():
            self.diffs[edge] = sum_up(block, summand)

    def _rows(self, block: Block) -> Sequence[int]:
        """Samples of each rank of the group."""
        return self._rows_of(self.net.graph.edges[block.bottom].shape[0])

    def _bounds(self, features: int) -> Bounds:
        return slice_bounds(features, self.shards.size)

    def _share_of_group(self) -> Callable[[int], Share]:
        """``context.split`` for the samples of the whole group: those of its ranks stand one behind the other."""
        own = self.net.context.split

        def split(samples: int) -> Share:
            rows, share = self._rows_of(samples), own(samples)
            return Share(share.start - sum(rows[: self.shards.rank]), sum(rows), share.total)

        return split

    # Forward

    def _samples_to_all(self, block: Block) -> Tensor:
        own = self.values[block.bottom]
        rows, features = self._rows(block), own.shape[1:]
        whole = room(sum(rows) * count(features))
        self.shards.Allgatherv(message(own), whole.numpy(), [r * count(features) for r in rows])
        return self._to_device(whole).view(sum(rows), *features)

    def _slices_to_all(self, block: Block) -> Tensor:
        rows, features = sum(self._rows(block)), self.net.graph.edges[block.bottom].shape[1]
        whole, bounds = room(rows * features), self._bounds(features)
        self.shards.Allgatherv(message(self.values[block.bottom]), whole.numpy(), sizes(rows, bounds))
        return together(self._to_device(whole), rows, bounds)

    def _slices_to_samples(self, block: Block, top: Tensor) -> Tensor:
        rows, bounds = self._rows(block), self._bounds(block.features)
        own = rows[self.shards.rank]
        received = room(own * block.features)
        sent = [r * top.shape[1] for r in rows]
        self.shards.Alltoallv(message(top), sent, received.numpy(), sizes(own, bounds))
        return together(self._to_device(received), own, bounds)

    # Backward

    def _samples_to_slices(self, block: Block, diff: Tensor) -> Tensor:
        rows, bounds = self._rows(block), self._bounds(block.features)
        start, stop = bounds[self.shards.rank]
        sent = message(apart(diff, bounds))
        received = room(sum(rows) * (stop - start))
        counts = [r * (stop - start) for r in rows]
        self.shards.Alltoallv(sent, sizes(diff.shape[0], bounds), received.numpy(), counts)
        return self._to_device(received).view(sum(rows), stop - start)

    def _sum_for_samples(self, block: Block, summand: Tensor) -> Tensor:
        rows, features = self._rows(block), summand.shape[1:]
        own = room(rows[self.shards.rank] * count(features))
        self.shards.Reduce_scatter(message(summand), own.numpy(), [r * count(features) for r in rows])
        return self._to_device(own).view(rows[self.shards.rank], *features)

    def _sum_for_slices(self, block: Block, summand: Tensor) -> Tensor:
        rows, bounds = summand.shape[0], self._bounds(summand.shape[1])
        start, stop = bounds[self.shards.rank]
        own = room(rows * (stop - start))
        self.shards.Reduce_scatter(message(apart(summand, bounds)), own.numpy(), sizes(rows, bounds))
        return self._to_device(own).view(rows, stop - start)
