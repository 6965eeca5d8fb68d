"""The simulated time of an iteration with layers on given devices, by the schedule of training."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bpt.config.precision import FLOAT32, Precision
from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.autocast import blob_itemsizes
from bpt.graph.layer_graph import LayerGraph
from bpt.graph.layer_spec import count
from bpt.graph.segments import Segment, cut, isolation_cuts
from bpt.graph.stages import borders, layer_stages, run_again
from bpt.graph.transfers import Transfer, transfers
from bpt.parallel.cluster.measured_costs import read_costs_of
from bpt.parallel.pipeline import Pipeline, streams
from bpt.parallel.pipeline.placement.problem import Cost, Placement, Problem
from bpt.parallel.pipeline.simulation import PipelineTrace, simulate

if TYPE_CHECKING:
    from bpt.config.plan.run_plan import RunPlan

DELAYED = pb.PipelineParameter.DELAYED
WARM = 2  # of DELAYED: iterations for each block before the clock starts, and as many after
PASSES = 2  # passes that an allocator's clock plays at most; further ones would be like the second


class StageTimes:
    """The PipelineTimes of segments and messages on the devices of a problem.

    Args:
        update: seconds of the update of all parameters at speed 1.
        itemsizes: bytes of an element of each edge's blob.
        gathers: the segments that run once for all micro-batches.
        recomputed: the segments that run forward again.
    """

    def __init__(
        self,
        problem: Problem,
        segments: Sequence[Segment],
        flows: Sequence[Transfer],
        itemsizes: Sequence[int],
        update: float = 0.0,
        gathers: Set[int] = frozenset(),
        recomputed: Set[int] = frozenset(),
    ) -> None:
        self._problem = problem
        self._gathers = gathers
        self._recomputed = recomputed
        self._segments = segments
        self._flows = flows
        self._update = update
        self._itemsizes = itemsizes
        self._parameters = sum(cost.parameters for cost in problem.costs)
        self._own = [0] * len(problem.devices)

    def own(self, stages: Sequence[int]) -> StageTimes:
        """Divide the update among the stages, by the bytes of their parameters; ``stages`` is by segment."""
        for segment, stage in zip(self._segments, stages, strict=True):
            costs = self._problem.costs[segment.start : segment.end]
            self._own[stage] += sum(cost.parameters for cost in costs)
        return self

    def forward(self, stage: int, segment: int) -> float:
        return self._compute(stage, segment, sum(cost.forward for cost in self._costs(segment)))

    def backward(self, stage: int, segment: int) -> float:
        forward = segment in self._recomputed
        return self._compute(
            stage, segment, sum(cost.backward + cost.forward * forward for cost in self._costs(segment))
        )

    def weights(self, stage: int, segment: int) -> float:
        return self._compute(stage, segment, sum(cost.weights for cost in self._costs(segment)))

    def transfer(self, flow: int, diff: bool) -> float:
        parts = self._problem.replicas * self._problem.micro_batches
        return size_of(self._flows[flow], self._itemsizes) / parts / self._problem.link.bandwidth

    def latency(self, flow: int, diff: bool) -> float:
        return self._problem.link.latency

    def exchange(self, stage: int, segment: int) -> float:
        return 0.0  # of one pipeline; its replicas would have to agree on gradients

    def update(self, stage: int) -> float:
        part = self._own[stage] / self._parameters if self._parameters else 0.0
        return self._update * part / self._problem.devices[stage].speed

    def _costs(self, segment: int) -> Sequence[Cost]:
        return self._problem.costs[self._segments[segment].start : self._segments[segment].end]

    def _compute(self, stage: int, segment: int, work: float) -> float:
        parts = 1 if segment in self._gathers else self._problem.micro_batches
        return work / self._problem.devices[stage].speed / parts


def size_of(transfer: Transfer, itemsizes: Sequence[int]) -> int:
    """Return the bytes of a transfer for the whole batch of the net, one way.

    ``itemsizes`` of an element of each edge's blob.
    """
    return itemsizes[transfer.edges[0]] * count(transfer.shape)


@dataclass(frozen=True)
class PlayedIteration:
    """A placement of layers on devices, and its simulated times.

    Attributes:
        segments: runs of layers on one stage, in order of the net; neighbours are on different stages, or gather.
        flows: what travels between stages.
        pipeline: both, as schedules know them.
        times: what they take.
        trace: the simulated iterations: one or, of DELAYED, several from the start of a run on.
        seconds: of an iteration; of DELAYED, once the pipeline is full.
    """

    segments: tuple[Segment, ...]
    flows: tuple[Transfer, ...]
    pipeline: Pipeline
    times: StageTimes
    trace: PipelineTrace
    seconds: float


@dataclass(frozen=True)
class Clock:
    """Plays placements of a training net; called as a function, it returns the seconds of an iteration.

    Attributes:
        graph, problem: the net, and what a placement is sought for.
        passes: of an iteration (iter_size).
        update: seconds of the update of all parameters at speed 1.
        precision: of the blobs that travel.
    """

    graph: LayerGraph
    problem: Problem
    passes: int = 1
    update: float = 0.0
    precision: Precision = FLOAT32

    def __call__(self, placement: Placement) -> float:
        return self.run(placement.starts, placement.stages).seconds

    def run(self, starts: Sequence[int], stages: Sequence[int]) -> PlayedIteration:
        """Play an iteration.

        Args:
            starts: the first layer of each partition, and
            stages: its stage.
        """
        problem = self.problem
        of_layer = layer_stages(self.graph, starts, stages)
        segments = cut(self.graph, sorted(borders(of_layer) | isolation_cuts(self.graph, problem.gathers)))
        gathers = frozenset(segment.index for segment in segments if segment.start in problem.gathers)
        own = tuple(of_layer[segment.start] for segment in segments)
        flows = transfers(self.graph, segments, own)
        pipeline = Pipeline(own, flows, self.passes, problem.micro_batches, gathers=gathers)
        delayed = problem.rule == DELAYED
        itemsizes = blob_itemsizes(self.graph, self.precision)
        recomputed = run_again(own, problem.rule) if problem.recomputes else frozenset()
        times = StageTimes(problem, segments, flows, itemsizes, self.update, gathers, recomputed).own(own)
        depth = len(pipeline.blocks)
        trace = simulate(streams(problem.rule, pipeline, 2 * WARM * depth if delayed else 1), times)
        seconds = trace.time
        if delayed:
            half = len(trace.steps) // 2
            seconds = (trace.steps[-1] - trace.steps[half - 1]) / (len(trace.steps) - half)
            trace = simulate(streams(problem.rule, pipeline, depth + 2), times)  # what is drawn
        return PlayedIteration(segments, flows, pipeline, times, trace, seconds)


def clock_of(plan: RunPlan, graph: LayerGraph, problem: Problem) -> Clock:
    """Return the clock that a solver's allocator decides by; it includes the update if costs were measured."""
    costs = read_costs_of(plan, graph)
    update = 0.0 if costs is None else costs.update
    return Clock(graph, problem, min(plan.optim.iter_size, PASSES), update, plan.precision)
