"""What both schemes of model-parallel layers share: which segments are split, and how blobs travel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from numpy.typing import NDArray
from torch import Tensor

from bpt.comm.base import Communicator
from bpt.execute.local import LocalOperator
from bpt.graph.model_parallel import Block, blocks
from bpt.graph.segments import Segment
from bpt.net import Net
from bpt.proto import bpt_pb2 as pb

Bounds = Sequence[tuple[int, int]]  # of each shard's slice of the features


class ModelParallelOperator(LocalOperator):
    """Executes a net whose split layers are spread over the ranks of ``shards`` (MPI-FC's ``MpiFcOperator``).

    All ranks of ``shards`` must execute the same instructions in the same order.

    Args:
        net: holds this rank's part (``graph.model_parallel.parts``).
        segments: cut where ``graph.model_parallel.starts`` says, and nowhere ``inside``.
        device, engine: as for LocalOperator.
        shards: the ranks of a replica that hold its slices, in order of rank.
    """

    scheme: ClassVar[int]  # of pb.FcParameter

    def __init__(
        self,
        net: Net,
        segments: Sequence[Segment],
        device: torch.device | str = "cpu",
        engine: int = pb.SolverParameter.CONTIGUOUS,
        *,
        shards: Communicator,
    ) -> None:
        super().__init__(net, segments, device, engine)
        self.shards = shards
        self._blocks = self._blocks_by_segment()

    def cut_into(self, segments: Sequence[Segment]) -> None:
        super().cut_into(segments)
        self._blocks = self._blocks_by_segment()

    def _blocks_by_segment(self) -> dict[int, Block]:
        by_segment = {}
        segment_at = {segment.start: segment for segment in self.segments}
        for block in blocks(self.net.graph, self.scheme):
            segment = segment_at[block.start]
            assert (segment.end, segment.inputs, segment.outputs) == (block.end, (block.bottom,), (block.top,))
            by_segment[segment.index] = block
        return by_segment

    def _to_device(self, received: Tensor) -> Tensor:
        return received.to(self.device, non_blocking=True)


def message(blob: Tensor) -> NDArray[Any]:
    """The elements of ``blob`` in their logical order, whatever its layout, on the host; a copy only if need be."""
    numbers: NDArray[Any] = blob.detach().contiguous().cpu().numpy()
    return numbers.reshape(-1)


def room(elements: int) -> Tensor:
    """Memory on the host to receive so many elements."""
    return torch.empty(elements)


def apart(blob: Tensor, bounds: Bounds) -> Tensor:
    """``blob`` (rows, features) as one flat tensor, slice by slice of its features."""
    rows = blob.shape[0]
    if (0, blob.shape[1]) in bounds:
        return blob.reshape(-1)
    flat = blob.new_empty(blob.numel())
    for start, stop in bounds:
        flat[rows * start : rows * stop].view(rows, stop - start).copy_(blob[:, start:stop])
    return flat


def together(flat: Tensor, rows: int, bounds: Bounds) -> Tensor:
    """The inverse of ``apart``."""
    slices = [flat[rows * start : rows * stop].view(rows, stop - start) for start, stop in bounds if stop > start]
    return slices[0] if len(slices) == 1 else torch.cat(slices, 1)


def sizes(rows: int, bounds: Bounds) -> list[int]:
    """Elements of each slice of a blob with so many rows."""
    return [rows * (stop - start) for start, stop in bounds]
