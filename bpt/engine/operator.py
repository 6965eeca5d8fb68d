"""Operator: executes what instructions say of the segments of a net, on one rank."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, MutableMapping, Sequence, Set

import torch
from torch import Tensor

from bpt.config.proto import bpt_pb2 as pb
from bpt.engine.active_batches import ActiveBatches, WholeShare
from bpt.engine.compute import Compute, LibraryCompute, Place, Update
from bpt.engine.gathered_batch import GatheredPass
from bpt.engine.losses import sum_of_losses
from bpt.engine.memory_format import MemoryFormatPlacement
from bpt.engine.pipeline_batches import PipelineBatches
from bpt.engine.pipeline_stage import PipelineStage
from bpt.engine.recomputed_pass import RecomputedPass
from bpt.engine.segment_pass import IdlePass, PlainPass, SegmentPass
from bpt.engine.segment_state import MicroBatchState
from bpt.engine.split_pass import MpiFcOperator, SplitBlock, SplitPass
from bpt.engine.weight_stashing import StashedPass
from bpt.graph.segments import Segment, whole
from bpt.nn.net import Net

MakeCompute = Callable[[Net, Place], Compute]


class Operator:
    """Executes what instructions say of a net on one rank, except the exchange and the update of its parameters.

    Between segments tensors are detached, so ``backward(s)`` differentiates segment ``s`` alone. The diffs of the edges
    at its end come from the segments behind it, from ``loss_weight`` and from a caller.

    What differs from run to run is composed. ``compute`` runs the layers of a segment. A ``SegmentPass`` for each
    segment says on which blobs and by which weights, and ``batches`` are what the passes run on.

    Args:
        net: the net, or this rank's part of it, already on ``device``.
        segments: how the graph is cut; by default the whole net is one segment.
        device: where layers without bottoms put their tops.
        engine: memory format of blobs with four or five axes, CONTIGUOUS or CHANNELS_LAST; may change between
            iterations.
        compute: makes what runs the layers.
        collectives: exchange the blobs of split layers; ``None``: there are none.
        stage: sends and receives what crosses between stages; ``None``: this rank runs all segments.
        splits: the micro-batches into which the share of a pass is cut (PassContext).
        delay: iterations between a batch's forward pass and its backward pass, in which the weights are updated;
            ``None``: both are in the same iteration. With a delay the number of a micro-batch is that of the iteration
            in which it begins; batches are not divided.
        gathers: layers that run once for all micro-batches of a pass; each is a segment alone.
        recomputed: layers that run forward again before they run backward; a segment of these keeps only its inputs
            until then.
        state: where the passes of the whole share leave values and diffs; by default an empty one.

    Attributes:
        segments: the segments that the net is cut into.
        gathers: the indices of the segments that run once for all micro-batches of a pass.
        micro_batches: the number of micro-batches of a pass.
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
        recomputed: Set[int] = frozenset(),
        state: MicroBatchState | None = None,
    ) -> None:
        self.net = net
        self.device = torch.device(device)
        self.place = MemoryFormatPlacement(self.device, engine)
        self.compute = compute(net, self.place)
        self.collectives = collectives
        self.stage = stage
        self.delay = delay
        self.micro_batches = math.prod(splits)
        self._gathered_layers = gathers
        self._recomputed = recomputed
        self._leads = collectives is None or collectives.leads
        self.batches: ActiveBatches
        if stage is not None:
            self.batches = PipelineBatches(net, self.place, stage, splits, delay, self._leads)
        else:
            self.batches = WholeShare(state or MicroBatchState(net.context))
        self._cut(tuple(segments or whole(net.graph)))

    @property
    def values(self) -> MutableMapping[int, Tensor]:
        """Edges at the segments' borders, detached; in a pipeline the net's outputs, once an iteration is over."""
        return self.batches.outcome.values

    @property
    def diffs(self) -> MutableMapping[int, Tensor]:
        """Diffs of the same edges."""
        return self.batches.outcome.diffs

    @property
    def engine(self) -> int:
        """The memory format of blobs with four or five axes."""
        return self.place.engine

    @engine.setter
    def engine(self, engine: int) -> None:
        self.place.engine = engine

    # How the net is cut, and what is in its blobs

    def cut_into(self, segments: Sequence[Segment]) -> None:
        """Cut the net into other segments, between iterations; what was fed stays."""
        inputs = {edge for node in self.net.graph.nodes if node.type == "Input" for edge in node.tops}
        fed = {edge: value for edge, value in self.values.items() if edge in inputs}
        self.reset()
        self.values.update(fed)
        self._cut(tuple(segments))

    def _cut(self, segments: tuple[Segment, ...]) -> None:
        self.segments = segments
        self.gathers = frozenset(segment.index for segment in segments if segment.start in self._gathered_layers)
        self.batches.cut_into(segments)
        stages = self.stage.layers if self.stage else ()
        blocks = self.collectives.blocks(self.net.graph, stages) if self.collectives else ()
        block_at = {block.start: block for block in blocks}
        self._passes = tuple(self._pass_of(segment, block_at.pop(segment.start, None)) for segment in segments)
        assert not block_at, f"no segments: {block_at}"

    def _pass_of(self, segment: Segment, block: SplitBlock | None) -> SegmentPass:
        """Return how this rank runs a segment, which is the split layers ``block`` if there are any."""
        run: SegmentPass
        if block is not None:
            assert self.collectives is not None
            run = SplitPass(self.net, self.compute, segment, block, self.collectives)
        elif not self._leads:
            return IdlePass(segment)
        else:
            run = PlainPass(self.net, self.compute, self.place, segment, fed=self.stage is None)
            if segment.index in self.gathers:
                run = GatheredPass(self.net.graph, run, self.micro_batches)
        if segment.start in self._recomputed:
            run = RecomputedPass(self.net, run)
        return StashedPass(self.net, run) if self.delay else run

    def feed(self, inputs: Mapping[int, Tensor]) -> None:
        """Set the tops of Input layers, by edge index, for the passes that follow."""
        for edge, tensor in inputs.items():
            self.values[edge] = self.place(tensor)

    def reset(self) -> None:
        """Forget all values and diffs, because the net's blobs have other shapes or the net is cut otherwise."""
        outcome = self.batches.outcome
        for store in (outcome.values, outcome.diffs, outcome.segments):
            store.clear()
        self.compute.reset()

    # Passes

    def begin_pass(self, iteration: int, number: int, loss_scale: float = 1.0) -> None:
        """Begin a pass on the whole share: the ``number``-th of an iteration, whose losses are scaled."""
        context = self.net.context.of_pass(iteration, number, self.net.next_rotation(), loss_scale)
        self.batches.outcome.context = context
        self.net.enter(context)

    def forward(self, index: int, micro: int | None = None, *, grad: bool = True) -> None:
        """Run segment ``index`` forward, on a micro-batch or the whole share.

        Args:
            grad: a backward pass will follow.
        """
        self.batches.forward(self._passes[index], micro, grad)

    def backward(self, index: int, micro: int | None = None, update: Update | None = None) -> None:
        """Run segment ``index`` backward: set its inputs' diffs, and add to the ``.grad`` of its parameters.

        Args:
            update: may update parameters of the segment whose gradients this completes (Compute).
        """
        self.batches.backward(self._passes[index], micro, update)

    def backward_weights(self, index: int, micro: int | None = None) -> None:
        """Add the gradients that ``backward`` has left, where it runs in two parts (TwoPartCompute)."""
        state = self.batches.state_of(micro).segments.pop(index, None)
        if state is not None:
            self.compute.backward_weights(self.segments[index], state)

    @property
    def can_join(self) -> bool:
        """Whether ``forward_backward`` can run the last segment."""
        return self.stage is None and self.collectives is None and self.compute.can_join(self.segments[-1])

    def forward_backward(self, index: int, update: Update | None = None) -> None:
        """Run segment ``index`` forward and backward on the whole share, without a stop in between.

        Args:
            update: as for ``backward``.
        """
        run = self._passes[index]
        assert isinstance(run, PlainPass), index
        run.forward_backward(self.batches.outcome, update)

    def divide_diffs(self) -> None:
        """Divide ``diffs`` by the loss scale, for observers after a whole pass."""
        scale = self.batches.outcome.context.loss_scale
        if scale == 1:
            return
        wanted = [
            pair for node in self.net.graph.nodes for pair in zip(node.bottoms, node.bottom_needs_diff, strict=True)
        ]
        scaled = {edge: self.diffs[edge] for edge, needs in wanted if needs and edge in self.diffs}
        unscaled = {id(diff): diff / scale for diff in scaled.values()}  # several edges may share one
        for edge, diff in scaled.items():
            self.diffs[edge] = unscaled[id(diff)]

    def losses(self, index: int, micro: int | None = None) -> Tensor:
        """Return the sum of the losses that segment ``index`` has just made, each times its ``loss_weight``."""
        values = self.batches.state_of(micro).values
        return sum_of_losses(self.net.graph, values, self.segments[index].outputs, self.device)

    def loss(self) -> Tensor:
        """Return the sum of all losses, each times its ``loss_weight``: a float64 scalar on the device."""
        edges = [edge.index for edge in self.net.graph.losses]
        return sum_of_losses(self.net.graph, self.values, edges, self.device)

    def layers_of(self, segment: int) -> str:
        """Return the names of the layers of a segment, in few words."""
        return self.segments[segment].describe(self.net.graph)

    def close(self) -> None:
        """Stop reading ahead, close all data sources, and end threads."""
        self.net.close()
        self.compute.close()
