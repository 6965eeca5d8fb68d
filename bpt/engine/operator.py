"""The Operator of the house: executes the instructions of a segment, where and how it was composed to."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, MutableMapping, Sequence, Set
from dataclasses import replace

import torch
from torch import Tensor

from bpt.config.proto import bpt_pb2 as pb
from bpt.engine.compute import Compute, LibraryCompute, Place, Update
from bpt.engine.gathered_batch import merge_micro_batches, scatter_micro_batches
from bpt.engine.instructions import PostRecv, Recv, Send
from bpt.engine.losses import starting_diff, sum_of_losses
from bpt.engine.memory_format import MemoryFormatPlacement, laid_out
from bpt.engine.micro_batches import MicroBatches, PassOutputs
from bpt.engine.pipeline_stage import PipelineStage
from bpt.engine.scheduler import LOOK
from bpt.engine.segment_state import MicroBatchState
from bpt.engine.split_pass import BlockPass, MpiFcOperator, SplitBlock
from bpt.engine.weight_stashing import add_gradients, copied_weights, use_stashed_weights
from bpt.graph.segments import Segment, whole
from bpt.nn.net import Net
from bpt.nn.pass_context import PassContext

MakeCompute = Callable[[Net, Place], Compute]


class Operator:
    """Executes what instructions say of a net on one rank, all but the exchange and the update of its parameters.

    Between segments tensors are detached, so ``backward(s)`` differentiates segment ``s`` alone. Diffs
    of the edges at its end come from the segments behind it, from ``loss_weight`` and from a caller.

    What differs from run to run is composed: ``compute`` runs the layers of a segment, ``collectives`` exchange blobs
    at the borders of layers that are split over ranks, ``stage`` sends and receives what crosses between stages. What
    the passes of a micro-batch leave is kept apart from that of others (MicroBatchState), from its first instruction
    until the backward pass of its last segment here. Without micro-batches there is one such state, which stays.

    Args:
        net: the net, or this rank's part of it, already on ``device``.
        segments: how the graph is cut; the whole net is one by default.
        device: where layers without bottoms put their tops.
        engine: layout of blobs with four or five axes, CONTIGUOUS or CHANNELS_LAST; may change between iterations.
        compute: makes what runs the layers.
        collectives: of split layers; ``None``: there are none.
        stage: in a pipeline; ``None``: this rank runs all segments. Layers without bottoms then run on stage 0, once
            for all micro-batches of a pass.
        splits: the micro-batches into which the share of a pass is cut; see PassContext.
        delay: iterations between a batch's forward pass and its backward pass, in which the weights are updated;
            ``None``: the two are of one iteration. With a delay the number of a micro-batch is that of the iteration
            whose batch it is; batches are not divided.
        gathers: layers that run once for all micro-batches of a pass; each is a segment alone.
        state: of the whole share; by default an empty one.

    Attributes:
        gathers: the segments of these layers.
    """

    def __init__(
        self,
        net: Net,
        segments: Sequence[Segment] | None = None,
        device: torch.device | str = "cpu",
        engine: int = pb.SolverParameter.CONTIGUOUS,
        *,
        compute: MakeCompute = LibraryCompute,
        collectives: MpiFcOperator | None = None,
        stage: PipelineStage | None = None,
        splits: tuple[int, ...] = (1,),
        delay: int | None = None,
        gathers: Set[int] = frozenset(),
        state: MicroBatchState | None = None,
    ) -> None:
        self.net = net
        self.place = MemoryFormatPlacement(torch.device(device), engine)
        self.compute = compute(net, self.place)
        self.collectives = collectives
        self.stage = stage
        self.delay = delay
        self.micro_batches = math.prod(splits)
        self._gathers = gathers
        self._state = state or MicroBatchState(net.context)
        self._under_way = MicroBatches(self.micro_batches, delay)
        self._outputs = PassOutputs(net)
        # Of the last iterations, where losses are known as late as the last stage's are by all.
        self._outcomes: deque[MicroBatchState] = deque(maxlen=stage.links.stages.size if stage else 1)
        if stage is not None:
            net.sources_apart = True
            net.enter(replace(net.context, micro_batch_splits=splits))
        self._cut(tuple(segments or whole(net.graph)))

    @property
    def values(self) -> MutableMapping[int, Tensor]:
        """Edges at the segments' borders, detached; in a pipeline the net's outputs, once an iteration is over."""
        return self._state.values

    @property
    def diffs(self) -> MutableMapping[int, Tensor]:
        """Diffs of the same edges."""
        return self._state.diffs

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return self.place.device

    @property
    def engine(self) -> int:
        """The layout of blobs with four or five axes."""
        return self.place.engine

    @engine.setter
    def engine(self, engine: int) -> None:
        self.place.engine = engine

    # How the net is cut, and what is in its blobs

    def cut_into(self, segments: Sequence[Segment]) -> None:
        """Go on with the net cut into other segments, between iterations; what was fed stays."""
        assert not self._under_way.states, "batches are under way, by the segments as they were"
        fed = {edge for node in self.net.graph.nodes if node.type == "Input" for edge in node.tops}
        kept = {edge: value for edge, value in self.values.items() if edge in fed}
        self.reset()
        self._state.values.update(kept)
        self._cut(tuple(segments))

    def _cut(self, segments: tuple[Segment, ...]) -> None:
        self.segments = segments
        self._blocks: dict[int, SplitBlock] = {}
        self.gathers = frozenset(segment.index for segment in segments if segment.start in self._gathers)
        if self.stage is not None:
            self.stage.cut_into(self.net.graph, segments)
        if self.collectives is not None:
            segment_at = {segment.start: segment for segment in segments}
            layers = self.stage.layers if self.stage else ()
            for block in self.collectives.blocks(self.net.graph, layers):
                segment = segment_at[block.start]
                assert (segment.end, segment.inputs, segment.outputs) == (block.end, (block.bottom,), (block.top,))
                self._blocks[segment.index] = block

    def feed(self, inputs: Mapping[int, Tensor]) -> None:
        """Set the tops of Input layers, by edge index, for the passes that follow."""
        for edge, tensor in inputs.items():
            self._state.values[edge] = self.place(tensor)

    def reset(self) -> None:
        """Forget all values and diffs: the net's blobs have got other shapes, or are cut otherwise."""
        self._state.values.clear()
        self._state.diffs.clear()
        self._state.segments.clear()
        self.compute.reset()

    # Passes

    def begin(self, iteration: int, micro_batches: int, number: int = 0, loss_scale: float = 1.0) -> None:
        """An iteration with so many micro-batches in all begins, at its ``number``-th pass."""
        self._under_way.begin(iteration, micro_batches, number, loss_scale)

    def begin_pass(self, iteration: int, number: int) -> None:
        """A pass on the whole share begins: the ``number``-th of an iteration."""
        rotation = self.net.next_rotation()
        context = replace(
            self.net.context,
            iteration=iteration,
            pass_number=number,
            rotation=rotation,
            loss_scale=self._under_way.loss_scale,
        )
        self._state.context = context
        self.net.enter(context)

    def _context_of(self, micro: int) -> PassContext:
        return self._under_way.context_of(micro, self.net.context)

    def _turn_to(self, micro: int | None) -> MicroBatchState:
        """Go on with a micro-batch, or with the whole share."""
        state = self._state if micro is None else self._under_way.state_of(micro, self.net.context)
        self.net.enter(state.context)
        return state

    def draw(self, micro: int) -> None:
        """``Draw``: run the layers without bottoms, for the micro-batches of a pass from ``micro`` on."""
        assert self.stage is not None
        rotation = self._under_way.rotations[micro] = self.net.next_rotation()
        self.net.enter(replace(self._context_of(micro), micro_batch=None, rotation=rotation))
        drawn = self.net.draw(self.place)
        if self._tells_rotation:
            self.stage.tell_rotation(rotation, micro)
        self._outputs.draw(drawn)
        for part in range(self.micro_batches):
            state = self._turn_to(micro + part)
            for edge, tensor in drawn.items():
                state.values[edge] = self._rows(edge, tensor, state.context)

    def _rows(self, edge: int, tensor: Tensor, context: PassContext) -> Tensor:
        """Return those of a micro-batch."""
        if not tensor.dim():
            return tensor
        own = context.split(self.net.graph.edges[edge].shape[0])
        part = context.part_of(own)
        return tensor.narrow(0, part.start - own.start, part.count)

    @property
    def _tells_rotation(self) -> bool:
        return self.net.training and self.net.context.rotates and self.leads

    @property
    def leads(self) -> bool:
        """Whether this rank runs all layers of its segments, and not only its slices of some."""
        return self.collectives is None or self.collectives.leads

    def forward(self, index: int, micro: int | None = None, *, grad: bool = True) -> None:
        """``Forward``: run segment ``index``, on a micro-batch or the whole share.

        Args:
            grad: backward will follow.
        """
        if micro is not None:
            self._prepare(micro, grad)
        state = self._turn_to(micro)
        with use_stashed_weights(self.net, state.weights):
            block = self._blocks.get(index)
            if block is not None:
                assert self.collectives is not None
                self.collectives.forward(self._block_pass(block, index, state, grad))
            elif self.leads and micro is not None and index in self.gathers:
                self._run_gathered(index, self._states(index, micro), grad)
            elif self.leads:
                self._run_whole(index, state, grad)
        if micro is not None and self.leads:
            for each in self._states(index, micro):
                self._outputs.add(each, [edge for edge in self.segments[index].outputs if edge in each.values])

    def _prepare(self, micro: int, grad: bool) -> None:
        """The first forward of a micro-batch here."""
        first, rotations = self._under_way.first_of(micro), self._under_way.rotations
        if first not in rotations and self._tells_rotation:
            assert self.stage is not None
            rotations[first] = self.stage.learn_rotation()
        if self.delay and grad:
            state = self._turn_to(micro)
            state.weights = state.weights or copied_weights(self.net)

    def _run_whole(self, index: int, state: MicroBatchState, grad: bool) -> None:
        for edge, top in self._compute(index, state, self._bottoms(index, state), grad).items():
            state.values[edge] = top

    def _bottoms(self, index: int, state: MicroBatchState) -> dict[int, Tensor]:
        """Return what comes into a segment."""
        segment = self.segments[index]
        fed = self._fed(segment)
        for edge in fed:
            state.values[edge] = laid_out(state.values[edge], self.engine)
        return {edge: state.values[edge] for edge in (*segment.inputs, *fed)}

    @property
    def joins(self) -> bool:
        """Whether ``both`` can run the last segment."""
        return self.stage is None and self.collectives is None and self.compute.joins(self.segments[-1])

    def both(self, index: int, update: Update | None = None) -> None:
        """``Both``: ``forward`` and ``backward`` of segment ``index``, on the whole share, without a stop in between.

        Args:
            update: as for ``backward``.
        """
        state = self._turn_to(None)
        tops, diffs = self.compute.both(
            self.segments[index], self._bottoms(index, state), lambda *top: self._starting_diff(state, *top), update
        )
        state.values.update(tops)
        state.diffs.update(diffs)

    def _states(self, index: int, micro: int) -> list[MicroBatchState]:
        """Return those that a segment runs at a time, from ``micro`` on: one, or those of a pass."""
        parts = self.micro_batches if index in self.gathers else 1
        return [self._turn_to(micro + part) for part in range(parts)]

    def _run_gathered(self, index: int, states: Sequence[MicroBatchState], grad: bool) -> None:
        segment = self.segments[index]
        whole = merge_micro_batches(states, segment.inputs, ())
        self.net.enter(whole.context)
        self._run_whole(index, whole, grad)
        states[0].segments.update(whole.segments)
        scatter_micro_batches({edge: whole.values[edge] for edge in segment.outputs}, states, False, self._rows)

    def _run_gathered_back(self, index: int, states: Sequence[MicroBatchState]) -> None:
        segment = self.segments[index]
        whole = merge_micro_batches(states, (), segment.outputs)
        whole.segments[index] = states[0].segments.pop(index)
        self.net.enter(whole.context)
        self._run_whole_back(index, whole)
        scatter_micro_batches(
            {edge: whole.diffs[edge] for edge in segment.inputs if edge in whole.diffs}, states, True, self._rows
        )

    def _compute(
        self, index: int, state: MicroBatchState, bottoms: Mapping[int, Tensor], grad: bool
    ) -> Mapping[int, Tensor]:
        tops, left = self.compute.forward(self.segments[index], bottoms, grad)
        if grad:
            state.segments[index] = left
        return tops

    def _fed(self, segment: Segment) -> list[int]:
        """Edges of the segment's Input layers; those that nobody has set hold zeros, as in Caffe."""
        graph = self.net.graph
        if self.net.sources_apart:
            return []
        edges = [e for node in graph.nodes[segment.start : segment.end] if node.type == "Input" for e in node.tops]
        for edge in edges:
            if edge not in self._state.values:
                shape = self._state.context.own_shape(graph.edges[edge].shape)
                self.feed({edge: torch.zeros(shape, dtype=self.net.context.precision.compute)})
        return edges

    def _block_pass(self, block: SplitBlock, index: int, state: MicroBatchState, grad: bool) -> BlockPass:
        def run(bottom: Tensor, context: PassContext) -> Tensor:
            self.net.enter(context)
            try:
                return self._compute(index, state, {block.bottom: bottom}, grad)[block.top]
            finally:
                self.net.enter(state.context)

        return BlockPass(
            block,
            index,
            state,
            run,
            lambda diff: self._compute_back(index, state, {block.top: diff}),
            lambda: self._starting_diff(state, block.top, state.values.get(block.top)),
        )

    def backward(self, index: int, micro: int | None = None, update: Update | None = None) -> None:
        """``Backward``: run segment ``index`` backward: sets its inputs' diffs, adds to its parameters' ``.grad``.

        Of a micro-batch it lets go of what only this needed.

        Args:
            update: may update parameters of the segment whose gradients this completes; see Compute.
        """
        state = self._turn_to(micro)
        with use_stashed_weights(self.net, state.weights):
            block = self._blocks.get(index)
            if block is not None:
                assert self.collectives is not None
                self.collectives.backward(self._block_pass(block, index, state, True))
            elif self.leads and micro is not None and index in self.gathers:
                self._run_gathered_back(index, self._states(index, micro))
            elif self.leads:
                self._run_whole_back(index, state, update)
        add_gradients(self.net, state.weights)
        for done in [] if micro is None else self._states(index, micro):
            for edge in self.segments[index].inputs:
                if not self.net.graph.edges[edge].loss_weight:  # it tells the shape of a diff that starts there
                    done.values.pop(edge, None)
            for edge in self.segments[index].outputs:
                done.diffs.pop(edge, None)

    def _run_whole_back(self, index: int, state: MicroBatchState, update: Update | None = None) -> None:
        tops = state.segments[index].tops
        starts = {edge: self._starting_diff(state, edge, top) for edge, top in tops.items()}
        for edge, diff in self._compute_back(index, state, starts, update).items():
            state.diffs[edge] = diff

    def _compute_back(
        self,
        index: int,
        state: MicroBatchState,
        diffs: Mapping[int, Tensor | None],
        update: Update | None = None,
    ) -> dict[int, Tensor]:
        return self.compute.backward(self.segments[index], state.segments.pop(index), diffs, state.weights, update)

    def _starting_diff(self, state: MicroBatchState, edge: int, top: Tensor | None) -> Tensor | None:
        return starting_diff(self.net.graph, edge, top, state.diffs.get(edge), state.context.loss_scale)

    def divide_diffs(self) -> None:
        """Let ``diffs`` be those of losses that are not scaled, for who looks at them after a whole pass."""
        scale = self._state.context.loss_scale
        if scale == 1:
            return
        wanted = [
            pair for node in self.net.graph.nodes for pair in zip(node.bottoms, node.bottom_needs_diff, strict=True)
        ]
        scaled = {edge: self.diffs[edge] for edge, needs in wanted if needs and edge in self.diffs}
        true = {id(diff): diff / scale for diff in scaled.values()}  # several edges may share one
        for edge, diff in scaled.items():
            self.diffs[edge] = true[id(diff)]

    def losses(self, index: int, micro: int | None = None) -> Tensor:
        """The sum of the losses that segment ``index`` has just made, each times its ``loss_weight``: float64."""
        state = self._state if micro is None else self._under_way.states[micro]
        edges = self.segments[index].outputs if self.leads else ()
        return sum_of_losses(self.net.graph, state.values, edges, self.device)

    def loss(self) -> Tensor:
        """Return the sum of all losses, each times its ``loss_weight``: a float64 scalar on the device."""
        edges = [edge.index for edge in self.net.graph.losses] if self.leads else ()
        return sum_of_losses(self.net.graph, self.values, edges, self.device)

    # Between stages

    def send(self, instruction: Send) -> None:
        """``Send``: what the transfer's edges carry, or the sum of their diffs."""
        if self.leads:
            assert self.stage is not None
            self.stage.send(instruction, self._turn_to(instruction.micro))

    def recv(self, instruction: Recv) -> None:
        """``Recv``: wait for what another stage sends; what comes next on this channel may come meanwhile."""
        if not self.leads:
            return
        assert self.stage is not None
        transfer, micro, diff = self.stage.transfers[instruction.transfer], instruction.micro, instruction.diff
        if not self.stage.expected(transfer, diff):
            self.stage.expect(transfer, diff, self._context_of(micro).own_shape)
        if self.delay is None and not self._under_way.is_last(micro):
            self.stage.expect(transfer, diff, self._context_of(micro + 1).own_shape)
        state = self._turn_to(micro)
        blob = self.place(self.stage.receive(transfer, diff, state.context.own_shape))
        if diff:
            state.diffs[transfer.edges[0]] = blob
        else:
            state.values.update(dict.fromkeys(transfer.edges, blob))

    def expect(self, instruction: PostRecv) -> None:
        """``PostRecv``: receive meanwhile a diff that a later iteration waits for here."""
        if not self.leads:
            return
        assert self.stage is not None
        transfer, micro = self.stage.transfers[instruction.transfer], instruction.micro
        with self.stage.links.stages.events.part_of(Recv(transfer.index, micro, diff=True)):
            self.stage.expect(transfer, True, self._context_of(micro).own_shape)

    def layers_of(self, segment: int) -> str:
        """Return what a segment is made of, in few words."""
        return self.segments[segment].describe(self.net.graph)

    def close(self) -> None:
        """Stop reading ahead, close all data sources, and end threads."""
        self.net.close()
        self.compute.close()

    # When an iteration is over

    def finish(self) -> None:
        """All micro-batches are done, and all that was sent has left; ``values`` are the net's outputs.

        With a delay, that is of a pass to look at; batches that are trained stay under way.
        """
        if self.stage is None:
            return
        self.stage.links.wait()
        if self.delay is None:
            self._under_way.clear()
        else:
            self._under_way.end(LOOK)
        self._show(self._outputs.take())

    def retire(self, batch: int | None) -> None:
        """``Retire``: let go of a batch (with a delay); ``values`` are the outputs of the iteration whose loss is due.

        So that a log shows one batch; in the first n - 1 iterations of n stages, the first one.
        """
        if batch is not None:
            self._under_way.end(batch)
        self._outcomes.append(self._outputs.take())
        self._show(self._outcomes[0])

    def forget(self) -> None:
        """Forget all batches that have not come back: the run goes on from elsewhere."""
        if self.stage is not None:
            self.stage.links.drop()
        self._under_way.clear()
        self._outcomes.clear()

    def _show(self, outcome: MicroBatchState) -> None:
        """Let ``values`` be these."""
        self._state = outcome
        self.net.enter(outcome.context)

    @property
    def outcome(self) -> MicroBatchState:
        """What ``values`` and ``diffs`` show."""
        return self._state
