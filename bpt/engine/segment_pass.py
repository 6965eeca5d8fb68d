"""SegmentPass: how the layers of one segment run on a batch, forward and backward."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from bpt.engine.compute import Compute, Update
from bpt.engine.losses import starting_diff
from bpt.engine.memory_format import MemoryFormatPlacement, laid_out
from bpt.engine.segment_state import MicroBatchState
from bpt.graph.segments import Segment
from bpt.nn.net import Net


class SegmentPass(Protocol):
    """Runs a segment forward and backward on what the batches hold; chosen once for each segment.

    A ``PlainPass`` runs all layers of the segment. A ``SplitPass`` runs this rank's slices of split layers, a
    ``GatheredPass`` runs all micro-batches at a time, a ``RecomputedPass`` runs forward again before backward, a
    ``StashedPass`` uses the weights of an earlier iteration, and an ``IdlePass`` runs no layers.

    Attributes:
        segment: the segment that it runs.
        num_states: micro-batches that it runs at a time.
    """

    segment: Segment
    num_states: int

    def forward(self, states: Sequence[MicroBatchState], grad: bool) -> None:
        """Run the segment from the values of its inputs in ``states`` to those of its outputs.

        Args:
            states: of ``num_states`` micro-batches, in order, or of the whole share.
            grad: a backward pass will follow.
        """

    def backward(self, states: Sequence[MicroBatchState], update: Update | None) -> None:
        """Run the segment from the diffs of its outputs in ``states`` to those of its inputs; add up gradients.

        Args:
            update: may update parameters whose gradients this completes; ``Compute`` describes it.
        """


class IdlePass:
    """The pass of a rank that runs no layer of the segment."""

    num_states = 1

    def __init__(self, segment: Segment) -> None:
        self.segment = segment

    def forward(self, states: Sequence[MicroBatchState], grad: bool) -> None:
        """Do nothing."""

    def backward(self, states: Sequence[MicroBatchState], update: Update | None) -> None:
        """Do nothing."""


class PlainPass:
    """Runs all layers of a segment on one micro-batch, or on the whole share.

    Args:
        compute: runs the layers.
        place: the device and the memory format of blobs.
        fed: Input layers of the segment get their tops by ``Operator.feed``; those that nobody has set hold zeros, as
            in Caffe.
    """

    num_states = 1

    def __init__(
        self, net: Net, compute: Compute, place: MemoryFormatPlacement, segment: Segment, fed: bool = True
    ) -> None:
        self.segment = segment
        self._net = net
        self._compute = compute
        self._place = place
        inputs = (node for node in net.graph.nodes[segment.start : segment.end] if node.type == "Input" and fed)
        self._fed = tuple(edge for node in inputs for edge in node.tops)
        self._read = (*segment.inputs, *self._fed)

    def forward(self, states: Sequence[MicroBatchState], grad: bool) -> None:
        (state,) = states
        bottoms = self._enter(state)
        tops, segment_state = self._compute.forward(self.segment, bottoms, grad)
        if grad:
            state.segments[self.segment.index] = segment_state
        for edge, top in tops.items():
            state.values[edge] = top

    def backward(self, states: Sequence[MicroBatchState], update: Update | None) -> None:
        (state,) = states
        self._net.enter(state.context)
        segment_state = state.segments.pop(self.segment.index)
        starts = {edge: self._starting_diff(state, edge, top) for edge, top in segment_state.tops.items()}
        diffs = self._compute.backward(self.segment, segment_state, starts, state.weights, update)
        for edge, diff in diffs.items():  # one by one: pycaffe's memory of blobs joins versions of a blob
            state.diffs[edge] = diff
        state.keep_due(self.segment.index, segment_state)

    def forward_backward(self, state: MicroBatchState, update: Update | None) -> None:
        """Run the segment forward and then backward, without a stop in between."""
        bottoms = self._enter(state)
        tops, diffs = self._compute.forward_backward(
            self.segment, bottoms, lambda *top: self._starting_diff(state, *top), update
        )
        state.values.update(tops)
        state.diffs.update(diffs)

    def _enter(self, state: MicroBatchState) -> dict[int, Tensor]:
        """Let the layers see the context of ``state``; return what the segment reads."""
        self._net.enter(state.context)
        for edge in self._fed:
            value = state.values.get(edge)
            if value is None:
                shape = state.context.own_shape(self._net.graph.edges[edge].shape)
                value = self._place(torch.zeros(shape, dtype=state.context.precision.compute))
            state.values[edge] = laid_out(value, self._place.engine)
        return {edge: state.values[edge] for edge in self._read}

    def _starting_diff(self, state: MicroBatchState, edge: int, top: Tensor | None) -> Tensor | None:
        return starting_diff(self._net.graph, edge, top, state.diffs.get(edge), state.context.loss_scale)
