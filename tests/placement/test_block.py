"""BLOCK against every cut there is."""

from __future__ import annotations

from itertools import combinations

import pytest

from bpt.errors import PrototxtError
from bpt.placement.allocate import allocate
from bpt.placement.problem import Problem
from bpt.proto import bpt_pb2 as pb
from tests.placement.problems import Param, fits, random_problem, stages_of, step_time

RULES = [Param.GPIPE, Param.ONE_F_ONE_B, Param.SEQUENTIAL, Param.DELAYED]


def brute_force(problem: Problem) -> float | None:
    """The time of a step of the best cut."""
    layers, devices = len(problem.costs), len(problem.devices)
    times = []
    for inner in combinations(problem.cuts[1:], devices - 1):
        starts = (0, *inner)
        stages = [sum(start <= layer for start in starts) - 1 for layer in range(layers)]
        if fits(problem, stages):
            times.append(step_time(problem, stages))
    return min(times, default=None)


@pytest.mark.parametrize("tight", [False, True])
@pytest.mark.parametrize("rule", RULES)
def test_best_of_all_cuts(rule: int, tight: bool) -> None:
    solved = 0
    for seed in range(60):
        problem = random_problem(seed, 4 + seed % 7, 1 + seed % 4, tight, rule)
        best = brute_force(problem) if len(problem.cuts) >= len(problem.devices) else None
        if best is None:
            with pytest.raises(PrototxtError):
                allocate(problem, pb.PipelineParameter())
            continue
        placement = allocate(problem, pb.PipelineParameter())
        stages = stages_of(placement, len(problem.costs))
        assert fits(problem, stages), seed
        assert placement.stages == tuple(range(len(problem.devices)))
        assert step_time(problem, stages) == pytest.approx(best, rel=1e-9), seed
        solved += 1
    assert solved >= 15
