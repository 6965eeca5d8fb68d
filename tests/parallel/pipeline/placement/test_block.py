"""BLOCK against every cut there is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from bpt.base.errors import PrototxtError
from bpt.config.plan.run_plan import PipelineSpec
from bpt.parallel.pipeline.placement.block import fastest_cut, genes_of
from bpt.parallel.pipeline.placement.device_placement import allocate
from bpt.parallel.pipeline.placement.loads import Loads
from bpt.parallel.pipeline.placement.objective import StepTime
from bpt.parallel.pipeline.placement.problem import Cost, Crossing, Device, DeviceLink, Problem
from tests.parallel.pipeline.placement.problems import (
    Param,
    capped,
    fills,
    fits,
    random_problem,
    stages_of,
    step_time,
    uneven,
)

RULES = [Param.GPIPE, Param.ONE_F_ONE_B, Param.SEQUENTIAL, Param.DELAYED]


def brute_force(problem: Problem) -> tuple[float, list[float]] | None:
    """The least time of a step, and of the cuts that take at most 2 % more the best ``evenness``."""
    layers, devices = len(problem.costs), len(problem.devices)
    found = []
    for inner in combinations(problem.cuts[1:], devices - 1):
        starts = (0, *inner)
        stages = [sum(start <= layer for start in starts) - 1 for layer in range(layers)]
        if fits(problem, stages):
            found.append((step_time(problem, stages), evenness(problem, stages)))
    if not found:
        return None
    fastest = min(time for time, _ in found)
    return fastest, min(even for time, even in found if time <= 1.02 * (1 + 1e-10) * fastest)


def evenness(problem: Problem, stages: Sequence[int]) -> list[float]:
    """What the fullest device fills, what the emptiest one leaves, and the time: each decides between equals."""
    shares = fills(problem, stages)
    return [round(max(shares), 9), -round(min(shares), 9), step_time(problem, stages)]


@pytest.mark.parametrize("tight", ["", "memory", "capacity"])
@pytest.mark.parametrize("rule", RULES)
def test_best_of_all_cuts(rule: int, tight: str) -> None:
    solved = 0
    for seed in range(60):
        problem = random_problem(seed, 4 + seed % 7, 1 + seed % 4, tight == "memory", rule)
        if tight == "capacity":
            problem = capped(problem, seed)
        best = brute_force(problem) if len(problem.cuts) >= len(problem.devices) else None
        if best is None:
            with pytest.raises(PrototxtError):
                allocate(problem, PipelineSpec())
            continue
        placement = allocate(problem, PipelineSpec())
        stages = stages_of(placement, len(problem.costs))
        assert fits(problem, stages), seed
        assert placement.stages == tuple(range(len(problem.devices)))
        assert evenness(problem, stages) == pytest.approx(best[1], rel=1e-6), seed
        loads = Loads(problem, problem.cuts)
        cut = fastest_cut(loads)
        assert cut is not None
        assert StepTime(loads).cost(np.array([genes_of(cut, loads.n)]))[0] == pytest.approx(best[0], rel=1e-9), seed
        solved += 1
    assert solved >= 15


def test_a_net_is_spread_where_nothing_overlaps() -> None:
    """All in a row takes 40 s and two messages for any cut. That of the middle takes 2 s at 2 bytes/s, others 1 s."""
    assert allocate(uneven(Param.SEQUENTIAL, 20), PipelineSpec()).starts == (0, 2)  # 40.2 s; the fastest take 40.1 s
    assert fastest_cut(Loads(uneven(Param.SEQUENTIAL, 20), range(5))) != (0, 2)
    # At 2 bytes/s 42 s are more than 2 % above 41 s. Of the others, the cut before the last layer but one leaves
    # 300 bytes on the fullest device, as that behind the first one does with its 301.
    assert allocate(uneven(Param.SEQUENTIAL, 2), PipelineSpec()).starts == (0, 3)


def test_memory_counts_as_shares_where_it_is_known() -> None:
    """Cut behind the first layer, 1/10 and 3/4 of the devices are filled; before the last two, 3/10 and 1/4."""
    assert allocate(uneven(Param.SEQUENTIAL, 20, (1000, 405)), PipelineSpec()).starts == (0, 3)
    assert allocate(uneven(Param.SEQUENTIAL, 20, (1000, math.inf)), PipelineSpec()).starts == (0, 2)


def test_what_is_clearly_faster_is_taken() -> None:
    """Of two devices that work side by side, the slow one gets little, whatever its memory."""
    problem = replace(uneven(Param.DELAYED, math.inf), devices=(Device("slow", 1), Device("fast", 3)))
    assert allocate(problem, PipelineSpec()).starts == (0, 1)


def test_no_device_is_left_empty_beside_a_full_one() -> None:
    """The first layer fills its device in any case. The fastest cut leaves the loss alone; it saves a byte of 101."""
    costs = (Cost("huge", 1, 2, 900), Cost("a", 1, 2, 50), Cost("b", 1, 2, 50), Cost("loss", 0, 0, 1))
    crossings = (Crossing(0, (1,), 2.0), Crossing(1, (2,), 2.0), Crossing(2, (3,), 1.0))
    devices = tuple(Device(str(i)) for i in range(3))
    problem = Problem(costs, crossings, devices, DeviceLink(1, 100), rule=Param.SEQUENTIAL)
    assert fastest_cut(Loads(problem, range(4))) in ((0, 1, 3), (0, 2, 3))
    assert allocate(problem, PipelineSpec()).starts == (0, 1, 2)
