"""What an operator must know of layers that are split over ranks: their blocks, and what exchanges their blobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from bpt.context import PassContext
from bpt.execute.segment_state import MicroBatchState
from bpt.graph.layer_graph import LayerGraph


@dataclass(frozen=True)
class Block:
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


@dataclass(frozen=True)
class BlockPass:
    """A pass of the split layers ``block`` on this rank's slice.

    Attributes:
        segment: its number.
        state: of the micro-batch.
        run: computes the top of the slice from its bottom, in a context.
        run_back: computes from the diff of that top what the bottom wants.
        starting_diff: the diff that comes to the block's top from behind.
    """

    block: Block
    segment: int
    state: MicroBatchState
    run: Callable[[Tensor, PassContext], Tensor]
    run_back: Callable[[Tensor | None], Mapping[int, Tensor]]
    starting_diff: Callable[[], Tensor | None]


class Collectives(Protocol):
    """Exchanges blobs before and after split layers (MPI-FC's ``MpiFcOperator``).

    All ranks that hold slices of a layer must execute the same instructions in the same order.
    """

    @property
    def leads(self) -> bool:
        """Whether this rank runs all layers, and not only its slices of those that are split."""

    def blocks(self, graph: LayerGraph, stages: Sequence[int]) -> Sequence[Block]:
        """Return the split layers of ``graph`` as blocks.

        Args:
            stages: the stage of each layer; empty: there are none.
        """

    def forward(self, call: BlockPass) -> None:
        """Run a block forward: from the bottom in ``call.state.values`` to the top there."""

    def backward(self, call: BlockPass) -> None:
        """Run a block backward: from the diff of its top to that of its bottom in ``call.state.diffs``."""
