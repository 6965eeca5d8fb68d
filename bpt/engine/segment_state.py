"""The state that passes leave for later instructions, of one segment and of all segments of a micro-batch."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field

from torch import Tensor, nn

from bpt.engine.weight_gradients import WeightGradients
from bpt.nn.pass_context import PassContext

Weights = Mapping[int, nn.Parameter]
"""Copies of parameters, by ``id`` of the parameter that was copied."""


@dataclass
class SegmentState:
    """The blobs that a segment's forward leaves for its backward: its inputs as leaves, and its outputs.

    Attributes:
        leaves: input edge → detached tensor.
        tops: output edge → tensor with its autograd graph.
        due: what the first part of a backward pass in two leaves for the second part.
        hidden_states: those that layers had before, by the layer's index, if they will run forward again.
    """

    leaves: dict[int, Tensor] = field(default_factory=dict)
    tops: dict[int, Tensor] = field(default_factory=dict)
    due: list[WeightGradients] = field(default_factory=list)
    hidden_states: Mapping[int, tuple[Tensor, ...]] = field(default_factory=dict)


@dataclass
class MicroBatchState:
    """The blobs that the passes of a micro-batch, or of a rank's whole share, leave.

    Attributes:
        context: of its pass.
        values: edges at the segments' borders, detached.
        diffs: the diffs of these edges.
        segments: what the backward pass of each segment needs, by the segment's index.
        weights: copies of the weights, if the net's own are updated before the backward pass comes.
    """

    context: PassContext
    values: MutableMapping[int, Tensor] = field(default_factory=dict)
    diffs: MutableMapping[int, Tensor] = field(default_factory=dict)
    segments: dict[int, SegmentState] = field(default_factory=dict)
    weights: Weights = field(default_factory=dict)

    def keep_due(self, segment: int, state: SegmentState) -> None:
        """Keep of a segment's state what a second part of its backward pass needs, if there will be one."""
        if state.due:
            self.segments[segment] = SegmentState(due=state.due)
