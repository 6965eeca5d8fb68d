"""SplitPass: layers that are split over ranks run on slices, whose blobs an MpiFcOperator exchanges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from torch import Tensor

from bpt.engine.compute import Compute, Update
from bpt.engine.differentiate import add_gradients
from bpt.engine.losses import starting_diff
from bpt.engine.segment_state import MicroBatchState, SegmentState
from bpt.graph.layer_graph import LayerGraph
from bpt.graph.segments import Segment
from bpt.nn.kernels.linear import DeferredProduct
from bpt.nn.net import Net
from bpt.nn.pass_context import PassContext


@dataclass(frozen=True)
class SplitBlock:
    """Layers ``[start, end)`` that run on slices: a split layer and, among peers, element-wise ones behind it.

    Attributes:
        bottom: the edge that the first layer reads.
        top: the edge that the last layer writes.
        features: of the top, over all slices.
        takes_slices: whether the bottom is there as the slices of a block before, not as samples.
        keeps_slices: whether the top stays in slices, for the block behind.
    """

    start: int
    end: int
    bottom: int
    top: int
    features: int
    takes_slices: bool
    keeps_slices: bool


@dataclass
class PieceStates(SegmentState):
    """What the pieces of a batch leave for the backward pass of a split segment.

    Attributes:
        pieces: the state of each piece, in order.
        product: what the gradients of the weights need, if they are computed once for all pieces.
    """

    pieces: list[SegmentState] = field(default_factory=list)
    product: DeferredProduct = field(default_factory=DeferredProduct)


@dataclass(frozen=True)
class BlockPass:
    """A pass of the split layers ``block`` on this rank's slice.

    Attributes:
        net: the net, or this rank's part of it.
        compute: runs the layers.
        segment: the segment that the block is.
        block: the layers.
        state: of the micro-batch.
        grad: a backward pass will follow.
        left: what forward leaves for backward.
    """

    net: Net
    compute: Compute
    segment: Segment
    block: SplitBlock
    state: MicroBatchState
    grad: bool
    left: PieceStates

    def run(self, bottom: Tensor, context: PassContext, pieces: int = 1) -> Tensor:
        """Return the top of the slice, computed from its bottom; layers see ``context`` meanwhile.

        Args:
            pieces: the number of pieces of the batch, one of which this is.
        """
        product = self.left.product if self.grad and pieces > 1 else None
        self.net.enter(replace(context, product=product))
        try:
            tops, segment_state = self.compute.forward(self.segment, {self.block.bottom: bottom}, self.grad)
        finally:
            self.net.enter(self.state.context)
        if self.grad:
            self.left.pieces.append(segment_state)
        return tops[self.block.top]

    def run_back(self, diff: Tensor | None, piece: int = 0) -> Tensor | None:
        """Return the diff of the bottom of a piece, computed from that of the slice's top; ``None``: it wants none."""
        state, diffs = self.left.pieces[piece], {self.block.top: diff}
        found = self.compute.backward(self.segment, state, diffs, self.state.weights)
        self.left.due += state.due
        return found.get(self.block.bottom)

    def add_deferred_gradients(self) -> None:
        """Add the gradients of the weights that the backward passes of pieces have left out."""
        if found := list(self.left.product.gradients()):
            weights, gradients = zip(*found, strict=True)
            add_gradients(weights, gradients)

    def starting_diff(self) -> Tensor | None:
        """Return the diff that flows into the block's top from behind; ``None`` if nothing does."""
        edge, state = self.block.top, self.state
        top, behind = state.values.get(edge), state.diffs.get(edge)
        return starting_diff(self.net.graph, edge, top, behind, state.context.loss_scale)


class MpiFcOperator(Protocol):
    """Exchanges blobs before and after split layers (MPI-FC's ``MpiFcOperator``).

    All ranks that hold slices of a layer must execute the same instructions in the same order.
    """

    @property
    def leads(self) -> bool:
        """Whether this rank runs all layers, and not only its slices of those that are split."""

    def blocks(self, graph: LayerGraph, stages: Sequence[int]) -> Sequence[SplitBlock]:
        """Return the split layers of ``graph`` as blocks.

        Args:
            stages: the stage of each layer; empty: there are none.
        """

    def forward(self, call: BlockPass) -> None:
        """Run a block forward: from the bottom in ``call.state.values`` to the top there."""

    def backward(self, call: BlockPass) -> None:
        """Run a block backward: from the diff of its top to that of its bottom in ``call.state.diffs``."""


class SplitPass:
    """Runs this rank's slice of a block of split layers, between the exchanges of ``collectives``."""

    num_states = 1

    def __init__(
        self, net: Net, compute: Compute, segment: Segment, block: SplitBlock, collectives: MpiFcOperator
    ) -> None:
        assert (segment.start, segment.end, segment.inputs, segment.outputs) == (
            block.start, block.end, (block.bottom,), (block.top,)
        )  # fmt: skip
        self.segment = segment
        self._net = net
        self._compute = compute
        self._block = block
        self._collectives = collectives

    def forward(self, states: Sequence[MicroBatchState], grad: bool) -> None:
        (state,) = states
        left = PieceStates()
        self._collectives.forward(self._enter(state, left, grad))
        if grad:
            state.segments[self.segment.index] = left

    def backward(self, states: Sequence[MicroBatchState], update: Update | None) -> None:
        (state,) = states
        left = state.segments.pop(self.segment.index)
        assert isinstance(left, PieceStates)
        self._collectives.backward(self._enter(state, left, True))
        state.keep_due(self.segment.index, left)

    def _enter(self, state: MicroBatchState, left: PieceStates, grad: bool) -> BlockPass:
        self._net.enter(state.context)
        return BlockPass(self._net, self._compute, self.segment, self._block, state, grad, left)
