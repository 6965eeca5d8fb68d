"""How an iteration goes with layers on given devices: the schedule of training, played on a virtual clock."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bpt.errors import PrototxtError
from bpt.graph.layer_graph import LayerGraph
from bpt.graph.segments import Segment, cut
from bpt.graph.spec import count
from bpt.graph.stages import borders, spread_over
from bpt.graph.transfers import Transfer, transfers
from bpt.placement.costs import BYTES, Cost
from bpt.placement.loads import Loads
from bpt.placement.problem import Problem
from bpt.proto import bpt_pb2 as pb
from bpt.report.plan import Outlook
from bpt.schedule.pipeline import Pipeline, streams
from bpt.schedule.pipeline.simulation import simulate

DELAYED = pb.PipelineParameter.DELAYED
WARM = 2  # of DELAYED: so many times the depth of iterations before, and as many after the clock starts


class StageTimes:
    """What segments and messages take on the devices of a problem; see ``bpt.schedule.pipeline.simulation.Times``.

    Args:
        update: seconds of the update of all parameters at speed 1.
    """

    def __init__(
        self, problem: Problem, segments: Sequence[Segment], flows: Sequence[Transfer], update: float = 0.0
    ) -> None:
        self._problem = problem
        self._segments = segments
        self._flows = flows
        self._update = update
        self._parameters = sum(cost.parameters for cost in problem.costs)
        self._own = [0] * len(problem.devices)

    def own(self, stages: Sequence[int]) -> StageTimes:
        """Divide the update among the stages, by the bytes of their parameters. ``stages``: of each segment."""
        for segment, stage in zip(self._segments, stages, strict=True):
            costs = self._problem.costs[segment.start : segment.end]
            self._own[stage] += sum(cost.parameters for cost in costs)
        return self

    def forward(self, stage: int, segment: int) -> float:
        return self._compute(stage, sum(cost.forward for cost in self._costs(segment)))

    def backward(self, stage: int, segment: int) -> float:
        return self._compute(stage, sum(cost.backward for cost in self._costs(segment)))

    def transfer(self, flow: int, diff: bool) -> float:
        return self._problem.link.seconds(size_of(self._flows[flow]) / self._problem.micro_batches)

    def exchange(self, stage: int, segment: int) -> float:
        return 0.0  # of one pipeline; its replicas would have to agree on gradients

    def update(self, stage: int) -> float:
        part = self._own[stage] / self._parameters if self._parameters else 0.0
        return self._update * part / self._problem.devices[stage].speed

    def _costs(self, segment: int) -> Sequence[Cost]:
        return self._problem.costs[self._segments[segment].start : self._segments[segment].end]

    def _compute(self, stage: int, work: float) -> float:
        return work / self._problem.devices[stage].speed / self._problem.micro_batches


def outlook(
    graph: LayerGraph, problem: Problem, starts: Sequence[int], stages: Sequence[int], passes: int, update: float
) -> Outlook:
    """What becomes of a placement.

    Args:
        starts: the first layer of each partition, and
        stages: its stage.
        passes: of an iteration (iter_size).
        update: seconds of the update of all parameters at speed 1.

    Raises:
        PrototxtError: the schedule cannot run stages that lie like that.
    """
    of_layer = spread_over(graph, starts, stages)
    segments = cut(graph, sorted(borders(of_layer)))
    own = tuple(of_layer[segment.start] for segment in segments)
    flows = transfers(graph, segments, own)
    pipeline = Pipeline(own, flows, passes, problem.micro_batches)
    if problem.rule == DELAYED and not pipeline.contiguous:
        raise PrototxtError(
            "pipeline_param: schedule: DELAYED needs stages of consecutive layers, in order; set allocator: BLOCK"
        )
    times = StageTimes(problem, segments, flows, update).own(own)
    depth = pipeline.depth
    iterations = 2 * WARM * depth if problem.rule == DELAYED else 1
    trace = simulate(streams(problem.rule, pipeline, iterations), times)
    seconds = trace.time
    if problem.rule == DELAYED:
        half = len(trace.steps) // 2
        seconds = (trace.steps[-1] - trace.steps[half - 1]) / (len(trace.steps) - half)
        trace = simulate(streams(problem.rule, pipeline, depth + 2), times)  # what is drawn
    busy = [times.update(stage) for stage in range(depth)]
    for segment, stage in enumerate(own):
        busy[stage] += pipeline.micros * (times.forward(stage, segment) + times.backward(stage, segment))
    parameters, activations = _memory(problem, starts, stages)
    return Outlook(
        segments, own, tuple(list(stages).count(stage) for stage in range(depth)), flows, trace, seconds, tuple(busy),
        parameters, activations,
    )  # fmt: skip


def size_of(transfer: Transfer) -> int:
    """Bytes of a transfer for a whole batch, one way."""
    return BYTES * count(transfer.shape)


def _memory(
    problem: Problem, starts: Sequence[int], stages: Sequence[int]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Bytes of parameters, and of blobs, of each stage, as the allocator counts them."""
    loads = Loads(problem, starts)
    held = loads.held(np.array([stages], dtype=np.int64))[0]
    parameters = [0.0] * len(problem.devices)
    for stage, own in zip(stages, loads.parameters, strict=True):
        parameters[stage] += float(own)
    return tuple(parameters), tuple(float(all_) - own for all_, own in zip(held, parameters, strict=True))
