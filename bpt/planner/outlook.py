"""How an iteration goes with layers on given devices: what the clock shows, and what each device does and holds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bpt.graph.layer_graph import LayerGraph
from bpt.placement.loads import Loads
from bpt.placement.problem import Problem
from bpt.planner.plan_report import Outlook
from bpt.predict.pipeline_clock import Clock


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
    run = Clock(graph, problem, passes, update).run(starts, stages)
    own, depth = run.pipeline.stages, run.pipeline.depth
    busy = [run.times.update(stage) for stage in range(depth)]
    for segment, stage in enumerate(own):
        busy[stage] += run.pipeline.micros * (run.times.forward(stage, segment) + run.times.backward(stage, segment))
    parameters, activations = _memory(problem, starts, stages)
    return Outlook(
        run.segments, own, tuple(list(stages).count(stage) for stage in range(depth)), run.flows, run.trace,
        run.seconds, tuple(busy), parameters, activations,
    )  # fmt: skip


def _memory(
    problem: Problem, starts: Sequence[int], stages: Sequence[int]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Bytes of parameters, and of blobs, of each stage, as the allocator counts them."""
    loads = Loads(problem, starts)
    genes = np.array([stages], dtype=np.int64)
    return tuple(loads.weights(genes)[0].tolist()), tuple(loads.blobs(genes)[0].tolist())
