"""Stage: a rank's place in a pipeline, and the blobs that cross between it and the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set

import torch
from torch import Tensor

from bpt.config.proto import bpt_pb2 as pb
from bpt.engine.instructions import LoadBatch, Send
from bpt.engine.pipeline_stage import ShapeNow
from bpt.engine.scheduler import Scheduler
from bpt.engine.segment_state import MicroBatchState
from bpt.graph.layer_graph import LayerGraph
from bpt.graph.layer_spec import count
from bpt.graph.segments import Segment
from bpt.graph.transfers import Transfer, transfers
from bpt.parallel.pipeline.model import Pipeline
from bpt.parallel.pipeline.stage_links import StageLinks
from bpt.parallel.pipeline.stage_schedulers import staged

ROTATION = 0  # the tag of what data layers tell; transfers have those behind it

TypeOf = Callable[[int], torch.dtype]


class Stage:
    """Sends and receives the blobs that ``Send`` and ``Recv`` name.

    Args:
        links: to the other stages.
        layers: the stage of each layer of the net.
        type_of: the numbers of the blob of an edge, in which it and its diff cross.
        rule: the order of micro-batches, of ``pb.PipelineParameter.Schedule``.

    Attributes:
        number: of this stage.
        layers: as given.
        of_segments: the stage of each segment.
        transfers: what crosses between stages, as the net is cut.
    """

    def __init__(
        self,
        links: StageLinks,
        layers: Sequence[int],
        type_of: TypeOf,
        rule: int = pb.PipelineParameter.SEQUENTIAL,
    ) -> None:
        self.links = links
        self.number = links.stages.rank
        self.of_segments: tuple[int, ...] = ()
        self.transfers: tuple[Transfer, ...] = ()
        self.layers = tuple(layers)
        self._type_of = type_of
        self._rule = rule
        self._made: tuple[Pipeline, Scheduler] | None = None

    def cut_into(self, graph: LayerGraph, segments: Sequence[Segment]) -> None:
        """Store that the net is cut into these segments."""
        self.of_segments = tuple(self.layers[segment.start] for segment in segments)
        self.transfers = transfers(graph, segments, self.of_segments)

    def scheduler(self, passes: int, micro_batches: int, broadcasts: bool, gathers: Set[int]) -> Scheduler:
        """Return this stage's scheduler, the same one for the same cut (PipelineStage)."""
        pipeline = Pipeline(
            self.of_segments, self.transfers, passes, micro_batches, broadcasts, gathers=frozenset(gathers)
        )
        if self._made is None or self._made[0] != pipeline:
            self._made = pipeline, staged(pipeline, self.number, self._rule)
        return self._made[1]

    def send(self, instruction: Send, state: MicroBatchState) -> None:
        """Start to send what the transfer's edges carry, or the sum of their diffs."""
        transfer, diff = self.transfers[instruction.transfer], instruction.diff
        store = state.diffs if diff else state.values
        blobs = [store.pop(edge) for edge in transfer.edges if edge in store]
        blob = blobs[0] if len(blobs) == 1 or not diff else torch.stack(blobs).sum(0)
        to = transfer.from_stage if diff else transfer.to_stage
        self.links.send(blob.to(self._type_of(transfer.edges[0])), to, _tag(transfer, diff), instruction)

    def expect(self, transfer: Transfer, diff: bool, shape_now: ShapeNow) -> None:
        """Start to receive the next blob of a transfer."""
        dtype = self._type_of(transfer.edges[0])
        self.links.expect(count(shape_now(transfer.shape)), *self._channel(transfer, diff), dtype)

    def expected(self, transfer: Transfer, diff: bool) -> int:
        """Return how many blobs of a transfer are awaited."""
        return self.links.expected(*self._channel(transfer, diff))

    def receive(self, transfer: Transfer, diff: bool, shape_now: ShapeNow) -> Tensor:
        """Return the first blob of a transfer that was expected; waits for it."""
        return self.links.receive(*self._channel(transfer, diff)).view(shape_now(transfer.shape))

    def send_rotation(self, rotation: float, micro: int) -> None:
        """Send the other stages the part of the batch by which data layers rotated the shares, for their masks.

        Args:
            micro: the first one of the pass.
        """
        for stage in range(1, self.links.stages.size):
            self.links.send(torch.tensor([rotation], dtype=torch.float64), stage, ROTATION, LoadBatch(micro))

    def recv_rotation(self) -> float:
        """Return the rotation that stage 0 sends for the next pass."""
        self.links.expect(1, 0, ROTATION, torch.float64)
        return self.links.receive(0, ROTATION).item()

    @staticmethod
    def _channel(transfer: Transfer, diff: bool) -> tuple[int, int]:
        """Return the source of a transfer's blobs, and their tag."""
        return (transfer.to_stage if diff else transfer.from_stage), _tag(transfer, diff)


def _tag(transfer: Transfer, diff: bool) -> int:
    return ROTATION + 1 + 2 * transfer.index + diff
