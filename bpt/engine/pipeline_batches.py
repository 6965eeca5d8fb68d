"""PipelineBatches: micro-batches that travel between the stages of a pipeline, several at a time."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace

from bpt.engine.active_batches import ActiveBatches, Handler
from bpt.engine.compute import Place, Update
from bpt.engine.gathered_batch import rows_of
from bpt.engine.instructions import InstructionBase, LoadBatch, PostRecv, Recv, ReleaseBatch, Send
from bpt.engine.micro_batches import DelayedBatches, MicroBatches, PassOutputs
from bpt.engine.pipeline_stage import PipelineStage
from bpt.engine.segment_pass import SegmentPass
from bpt.engine.segment_state import MicroBatchState
from bpt.graph.segments import Segment
from bpt.nn.net import Net


class PipelineBatches(ActiveBatches):
    """The micro-batches of one stage.

    Layers without bottoms run on stage 0, once for all micro-batches of a pass. What the passes of a micro-batch leave
    stays until the backward pass of its last segment here.

    Args:
        net: this rank's part of the net.
        place: puts blobs on the device, in the memory format in use.
        stage: sends and receives what crosses between stages.
        splits: the micro-batches into which the share of a pass is cut (PassContext).
        delay: iterations between the two passes of a batch; ``None``: both are in the same iteration.
        leads: whether this rank runs unsplit layers; a slave of split layers sends and receives nothing.

    Attributes:
        under_way: the micro-batches that have begun and not ended.
        outputs: the outputs that the pass under way has made.
    """

    def __init__(
        self,
        net: Net,
        place: Place,
        stage: PipelineStage,
        splits: tuple[int, ...],
        delay: int | None,
        leads: bool,
    ) -> None:
        super().__init__(MicroBatchState(net.context))
        net.sources_apart = True
        net.enter(replace(net.context, micro_batch_splits=splits))
        self.under_way = MicroBatches(net, math.prod(splits)) if delay is None else DelayedBatches(net)
        self.outputs = PassOutputs(net)
        self._net = net
        self._place = place
        self._stage = stage
        self._leads = leads
        # The outputs of the last iterations: all stages know the loss as late as the last stage does.
        self._outcomes: deque[MicroBatchState] = deque(maxlen=stage.links.stages.size)

    def handlers(self) -> Mapping[type[InstructionBase], Handler]:
        return {
            LoadBatch: self.load_batch,
            Send: self.send,
            Recv: self.recv,
            PostRecv: self.post_recv,
            ReleaseBatch: self.release_batch,
        }

    def cut_into(self, segments: Sequence[Segment]) -> None:
        assert not self.under_way.states, "batches are under way, by the segments as they were"
        self._stage.cut_into(self._net.graph, segments)

    def begin(self, iteration: int, micro_batches: int, number: int = 0, loss_scale: float = 1.0) -> None:
        self.under_way.begin(iteration, micro_batches, number, loss_scale)

    def state_of(self, micro: int | None) -> MicroBatchState:
        assert micro is not None
        return self.under_way.state_of(micro)

    # Passes

    def load_batch(self, instruction: LoadBatch) -> None:
        """Run the layers without bottoms, for the micro-batches of a pass from ``instruction.micro`` on."""
        micro, batches = instruction.micro, self.under_way
        rotation = batches.rotations[micro] = self._net.next_rotation()
        self._net.enter(replace(batches.context_of(micro), micro_batch=None, rotation=rotation))
        tops = self._net.draw(self._place)
        if self._sends_rotation:
            self._stage.send_rotation(rotation, micro)
        self.outputs.set_whole(tops)
        for state in batches.states_from(micro, batches.num_of_pass):
            for edge, tensor in tops.items():
                state.values[edge] = rows_of(self._net.graph, edge, tensor, state.context)

    @property
    def _sends_rotation(self) -> bool:
        """Whether stage 0 sends the rotation of the shares to the other stages."""
        return self._net.training and self._net.context.rotates and self._leads

    def forward(self, run: SegmentPass, micro: int | None, grad: bool) -> None:
        assert micro is not None
        first, rotations = self.under_way.first_of(micro), self.under_way.rotations
        if first not in rotations and self._sends_rotation:
            rotations[first] = self._stage.recv_rotation()
        states = self.under_way.states_from(micro, run.num_states)
        run.forward(states, grad)
        for state in states:
            self.outputs.add(state, run.segment.outputs)

    def backward(self, run: SegmentPass, micro: int | None, update: Update | None) -> None:
        """Run a segment backward, and drop what only this needed."""
        assert micro is not None
        states = self.under_way.states_from(micro, run.num_states)
        run.backward(states, update)
        for state in states:
            for edge in run.segment.inputs:
                if not self._net.graph.edges[edge].loss_weight:  # it tells the shape of a diff that starts there
                    state.values.pop(edge, None)
            for edge in run.segment.outputs:
                state.diffs.pop(edge, None)

    # Messages between stages

    def send(self, instruction: Send) -> None:
        """Send what the edges of a transfer carry, or the sum of their diffs."""
        if self._leads:
            self._stage.send(instruction, self.under_way.state_of(instruction.micro))

    def recv(self, instruction: Recv) -> None:
        """Wait for what another stage sends; what comes next on this channel may come meanwhile."""
        if not self._leads:
            return
        transfer, micro, diff = self._stage.transfers[instruction.transfer], instruction.micro, instruction.diff
        if not self._stage.expected(transfer, diff):
            self._stage.expect(transfer, diff, self.under_way.context_of(micro).own_shape)
        if self.under_way.has_next(micro):
            self._stage.expect(transfer, diff, self.under_way.context_of(micro + 1).own_shape)
        state = self.under_way.state_of(micro)
        blob = self._place(self._stage.receive(transfer, diff, state.context.own_shape))
        if diff:
            state.diffs[transfer.edges[0]] = blob
        else:
            state.values.update(dict.fromkeys(transfer.edges, blob))

    def post_recv(self, instruction: PostRecv) -> None:
        """Start to receive a diff for which a later iteration waits."""
        if not self._leads:
            return
        transfer, micro = self._stage.transfers[instruction.transfer], instruction.micro
        with self._stage.links.stages.events.part_of(Recv(transfer.index, micro, diff=True)):
            self._stage.expect(transfer, True, self.under_way.context_of(micro).own_shape)

    # The end of an iteration

    def finish(self) -> None:
        """Wait until all that was sent has left; ``outcome`` is the net's outputs."""
        self._stage.links.wait()
        self.under_way.end_iteration()
        self._show(self.outputs.pop())

    def release_batch(self, instruction: ReleaseBatch) -> None:
        """Drop a delayed batch; ``outcome`` is the outputs of the iteration whose loss is due.

        So a log shows one batch. In the first n - 1 iterations of n stages that is the first one.
        """
        if instruction.batch is not None:
            self.under_way.end(instruction.batch)
        self._outcomes.append(self.outputs.pop())
        self._show(self._outcomes[0])

    def forget(self) -> None:
        self._stage.links.drop()
        self.under_way.clear()
        self._outcomes.clear()

    def _show(self, outcome: MicroBatchState) -> None:
        self.outcome = outcome
        self._net.enter(outcome.context)
