"""The gradients that travel in an iteration: their bytes and messages, segment by segment."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from bpt.config.plan.run_plan import RunPlan
from bpt.graph.layer_graph import LayerGraph, Param
from bpt.graph.segments import Segment
from bpt.parallel.exchange.buckets import LARGE
from bpt.parallel.exchange.codec import CODECS
from bpt.train.runtime.cutting import last_segments


@dataclass(frozen=True)
class GradientMessages:
    """Bytes of a segment's gradients on each rank, and the messages in which they travel.

    Attributes:
        whole, messages: bytes and messages of whole parameters.
        slices, slice_messages: bytes and messages of slices of parameters.
        coded, coded_slices: bytes of the coded ``whole`` and ``slices``; ``None``: there is no codec.
        packed: bytes of whole parameters that travel together in one message.
    """

    whole: float
    messages: int
    slices: float = 0.0
    slice_messages: int = 0
    coded: float | None = None
    coded_slices: float | None = None
    packed: float = 0.0

    @property
    def summed(self) -> float:
        """Bytes of all gradients that are summed, whole and sliced."""
        coded = self.whole if self.coded is None else self.coded
        return coded + (self.slices if self.coded_slices is None else self.coded_slices)


def gradient_messages(
    plan: RunPlan, graph: LayerGraph, segments: Sequence[Segment], split: AbstractSet[int], slices: int
) -> dict[int, GradientMessages]:
    """Return the gradients that are summed after each segment's backward pass, by segment.

    Args:
        split: the layers of which each shard has a slice.
        slices: the number of slices.
    """
    last = last_segments(graph, segments)
    itemsize = plan.precision.wire.itemsize
    param = plan.parallel_param.compression_param
    codec = CODECS[param.name](param) if param.name else None

    def coded(shapes: Sequence[Sequence[float]]) -> float | None:
        return None if codec is None else sum(codec.coded_bytes(shape, itemsize) for shape in shapes)

    own_of: defaultdict[int, list[Param]] = defaultdict(list)
    for each in graph.learnable:
        if each.lr_mult:
            own_of[last[each.index]].append(each)
    found = {}
    for segment in segments:
        if own := own_of[segment.index]:
            whole = [each.shape for each in own if each.layer not in split]
            sliced = [(each.shape[0] / slices, *each.shape[1:]) for each in own if each.layer in split]
            sizes, slice_sizes = list(map(math.prod, whole)), list(map(math.prod, sliced))
            found[segment.index] = GradientMessages(
                sum(sizes) * itemsize,
                _num_messages(sizes),
                sum(slice_sizes) * itemsize,
                _num_messages(slice_sizes),
                coded(whole),
                coded(sliced),
                sum(size for size in sizes if size < LARGE) * itemsize,
            )
    return found


def _num_messages(sizes: Sequence[float]) -> int:
    """Return the number of messages: each large parameter has its own, all others share one."""
    large = sum(size >= LARGE for size in sizes)
    return large + (large < len(sizes))
