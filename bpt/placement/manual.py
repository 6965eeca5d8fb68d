"""MANUAL: layers name the stage that runs them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bpt.errors import LayerError, PrototxtError
from bpt.placement.infeasible import infeasible
from bpt.placement.loads import Loads, lacking
from bpt.placement.placement import Placement, joined
from bpt.placement.problem import Problem
from bpt.proto import bpt_pb2 as pb

FIELD = "parallel_param { stage }"


def by_hand(problem: Problem, marks: Sequence[int | None]) -> Placement:
    """Place each layer on the stage that it names, or on that of the layer before it; the first ones on stage 0.

    Args:
        marks: one a layer: the stage that it names, or ``None``. Layers without bottoms run on stage 0 in any case;
            what they name counts for the layers behind them.

    Raises:
        LayerError: a stage that there is not, or layers that must stay together on several stages.
        PrototxtError: a stage has no layers, or a device too little memory, or the stages' order does not suit DELAYED.
    """
    assert len(marks) == len(problem.costs), (len(marks), len(problem.costs))
    m = len(problem.devices)
    for layer, mark in enumerate(marks):
        if mark is not None and not 0 <= mark < m:
            raise LayerError(
                problem.costs[layer].name, f"{FIELD}: there is no stage {mark}; the stages are 0 to {m - 1}"
            )
    stages: list[int] = []
    for mark in marks:
        before = stages[-1] if stages else 0
        stages.append(before if mark is None else mark)
    _skip_sources(problem, stages)
    for start, end in problem.together:
        _check_together(problem, stages, start, end, "whose parameters or blobs it shares")
    for start, end in problem.beside_sources:
        _check_together(problem, stages, start, end, "since data layers stay with the first layer that computes")
    empty = sorted(set(range(m)) - set(stages))
    if empty:
        used = len(set(stages))
        others = f"or set num_stages: {used}" if empty[0] == used else f"or number the stages from 0 to {used - 1}"
        raise PrototxtError(
            f"no layer runs on stage {empty[0]} ({_device(problem, empty[0])}); let one name it, "
            f"parallel_param {{ stage: {empty[0]} }}, {others}"
        )
    starts, devices = joined(range(len(stages)), stages)
    if problem.rule == pb.PipelineParameter.DELAYED and devices != tuple(range(m)):
        raise PrototxtError(
            "schedule: DELAYED needs consecutive layers on each stage, in the stages' order; the layers name stages "
            f"{', '.join(map(str, devices))}"
        )
    loads = Loads(problem, starts)
    genes = np.array(devices, dtype=np.int64)
    if lacking(loads.held(genes[None])[0], loads.memory).any():
        raise infeasible(loads, genes, "the stages that the layers name do not fit")
    return Placement(starts, devices)


def _device(problem: Problem, stage: int) -> str:
    name = problem.devices[stage].name
    return name if name.startswith("device") else f"device {name}"


def _skip_sources(problem: Problem, stages: list[int]) -> None:
    """Layers without bottoms cut no run: each stands with the layer before it, the first ones with the one behind."""
    sources = set(problem.sources)
    first = next((layer for layer in range(len(stages)) if layer not in sources), 0)
    stages[:first] = [stages[first]] * first
    for layer in range(first + 1, len(stages)):
        if layer in sources:
            stages[layer] = stages[layer - 1]


def _check_together(problem: Problem, stages: Sequence[int], start: int, end: int, why: str) -> None:
    for layer in range(start + 1, end):
        if stages[layer] != stages[start]:
            raise LayerError(
                problem.costs[layer].name,
                f'{FIELD}: it must run on the same stage as layer "{problem.costs[start].name}", {why}; '
                f"that one is on stage {stages[start]}, this one on {stages[layer]}",
            )
