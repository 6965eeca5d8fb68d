"""ActiveBatches: what the passes of an operator run on, from the first instruction of a batch to its last."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bpt.engine.compute import Update
from bpt.engine.instructions import InstructionBase, LoadBatch
from bpt.engine.segment_pass import SegmentPass
from bpt.engine.segment_state import MicroBatchState
from bpt.graph.segments import Segment

Handler = Callable[[Any], None]


class ActiveBatches(ABC):
    """The batches that a rank trains or tests.

    A ``WholeShare`` is one batch, whose samples go through the net together. ``PipelineBatches`` are micro-batches that
    travel between stages, several at a time. What only pipelines need does nothing here.

    Attributes:
        outcome: the values and diffs that a caller may look at.
    """

    def __init__(self, outcome: MicroBatchState) -> None:
        self.outcome = outcome

    def handlers(self) -> Mapping[type[InstructionBase], Handler]:
        """Return what executes the instructions that only these batches know."""
        return {}

    def cut_into(self, segments: Sequence[Segment]) -> None:
        """Store that the net is cut into these segments; no batch may be under way."""
        return

    def begin(self, iteration: int, micro_batches: int, number: int = 0, loss_scale: float = 1.0) -> None:
        """Begin an iteration with ``micro_batches`` in all, at its ``number``-th pass."""
        return

    def load_batch(self, instruction: LoadBatch) -> None:
        """Run the layers without bottoms, if they run apart, for the pass that begins with ``instruction.micro``."""
        return

    @abstractmethod
    def state_of(self, micro: int | None) -> MicroBatchState:
        """Return what the passes of a micro-batch have left; of the whole share for ``None``."""

    @abstractmethod
    def forward(self, run: SegmentPass, micro: int | None, grad: bool) -> None:
        """Run a segment forward, from the micro-batch ``micro`` on, or on the whole share."""

    @abstractmethod
    def backward(self, run: SegmentPass, micro: int | None, update: Update | None) -> None:
        """Run a segment backward, from the micro-batch ``micro`` on, or on the whole share."""

    def finish(self) -> None:
        """End all passes of an iteration, or a pass without a backward pass; ``outcome`` is the net's outputs."""
        return

    def forget(self) -> None:
        """Drop all batches that are under way, because the run continues from elsewhere."""
        return


class WholeShare(ActiveBatches):
    """The whole share of a rank, as one batch; it stays when the iteration is over."""

    def state_of(self, micro: int | None) -> MicroBatchState:
        return self.outcome

    def forward(self, run: SegmentPass, micro: int | None, grad: bool) -> None:
        run.forward([self.outcome], grad)

    def backward(self, run: SegmentPass, micro: int | None, update: Update | None) -> None:
        run.backward([self.outcome], update)
