"""PipelineStage: the protocol by which an operator and its executor use a rank's place in a pipeline."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import Protocol

from torch import Tensor

from bpt.engine.instructions import Send
from bpt.engine.scheduler import Scheduler
from bpt.engine.segment_state import MicroBatchState
from bpt.graph.layer_graph import LayerGraph
from bpt.graph.layer_spec import Shape
from bpt.graph.segments import Segment
from bpt.graph.transfers import Transfer
from bpt.system.comm.base import Communicator

ShapeNow = Callable[[Shape], Shape]
"""The shape of a blob for a micro-batch, from its shape for the whole batch."""


class StageMessages(Protocol):
    """The messages between a stage and the others.

    Attributes:
        stages: the communicator of all stages.
    """

    stages: Communicator

    def wait(self) -> None:
        """Wait until all that was sent has left."""

    def drop(self) -> None:
        """Drop all messages that are under way."""


class PipelineStage(Protocol):
    """Sends and receives what the instructions Send and Recv name.

    Attributes:
        number: the number of this stage.
        layers: the stage of each layer.
        transfers: what crosses between stages, as the net is cut.
    """

    number: int
    layers: tuple[int, ...]
    transfers: tuple[Transfer, ...]

    @property
    def links(self) -> StageMessages:
        """The messages between this stage and the others."""

    def cut_into(self, graph: LayerGraph, segments: Sequence[Segment]) -> None:
        """Take note of the segments that the net is cut into."""

    def scheduler(self, passes: int, micro_batches: int, broadcasts: bool, gathers: Set[int]) -> Scheduler:
        """Return the scheduler of this stage.

        Args:
            passes: of an iteration (``iter_size``).
            micro_batches: of a pass.
            broadcasts: an iteration begins with Broadcast.
            gathers: segments that run once for all micro-batches of a pass.
        """

    def send(self, instruction: Send, state: MicroBatchState) -> None:
        """Start to send the values of a transfer's edges, or the sum of their diffs."""

    def expect(self, transfer: Transfer, diff: bool, shape_now: ShapeNow) -> None:
        """Start to receive the next blob of a transfer."""

    def expected(self, transfer: Transfer, diff: bool) -> int:
        """Return the number of blobs of a transfer that are awaited."""

    def receive(self, transfer: Transfer, diff: bool, shape_now: ShapeNow) -> Tensor:
        """Return the first blob of a transfer that was expected; wait for it."""

    def send_rotation(self, rotation: float, micro: int) -> None:
        """Send the rotation of the shares to the other stages, for the pass that begins with ``micro``."""

    def recv_rotation(self) -> float:
        """Receive the rotation of the shares of the next pass."""
