"""EXACT against every placement there is."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from bpt.base.errors import PrototxtError
from bpt.parallel.pipeline.placement import exact
from bpt.parallel.pipeline.placement.exact import best_placement
from bpt.parallel.pipeline.placement.gabra import good_placement
from bpt.parallel.pipeline.placement.loads import Loads
from bpt.parallel.pipeline.placement.objective import UNFIT, Objective, Profit, StepTime, score
from bpt.parallel.pipeline.placement.problem import Device, DeviceLink
from tests.parallel.pipeline.placement.problems import Param, capped, chain, fits, random_problem, step_time


@pytest.mark.parametrize("rule", [Param.GPIPE, Param.ONE_F_ONE_B])
@pytest.mark.parametrize("tight", ["", "memory", "capacity"])
def test_step_time_of_all_placements(rule: int, tight: str) -> None:
    """Layer by layer, in a plain program."""
    found = 0
    for seed in range(25):
        problem = random_problem(seed, 4 + seed % 3, 2 + seed % 2, tight == "memory", rule, sources=False)
        if tight == "capacity":
            problem = capped(problem, seed)
        layers, devices = len(problem.costs), len(problem.devices)
        times = [
            step_time(problem, stages)
            for stages in product(range(devices), repeat=layers)
            if len(set(stages)) == devices and fits(problem, stages)
        ]
        objective = StepTime(Loads(problem, problem.cuts))
        start = np.array([0] * layers)  # not allowed: what is found owes nothing to it
        best = best_placement(objective, start)
        assert (score(objective, best[None])[0] < UNFIT) == bool(times)
        if times:
            assert objective.cost(best[None])[0] == pytest.approx(min(times), rel=1e-9)
            found += 1
    assert found >= 15


@pytest.mark.parametrize("tight", ["", "memory", "capacity"])
def test_both_objectives_with_sources_and_twins(tight: str) -> None:
    for seed in range(40):
        problem = random_problem(seed, 7, 3, tight == "memory")
        if tight == "capacity":
            problem = capped(problem, seed)
        if seed % 2:
            problem = replace(problem, devices=(problem.devices[0],) * 3)
        loads = Loads(problem, problem.cuts)
        every = np.array(list(product(range(3), repeat=loads.n)))
        start = good_placement(loads)
        objectives: list[Objective] = [StepTime(loads)]
        if score(objectives[0], start[None])[0] < UNFIT:
            objectives.append(Profit(loads, start))
        for objective in objectives:
            least = score(objective, every).min()
            best = score(objective, best_placement(objective, start)[None])[0]
            assert best == pytest.approx(least, rel=1e-9) or best >= UNFIT <= least


def test_too_big(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "MOST", 1000)
    problem = chain(
        [3, 5, 7, 11, 13, 17, 19, 23, 29, 31], [Device(str(i), 1 + i / 7) for i in range(4)], link=DeviceLink()
    )
    problem = replace(problem, micro_batches=64)
    objective = StepTime(Loads(problem, problem.cuts))
    with pytest.raises(PrototxtError, match=r"10 partitions on 4 devices are too many; use allocator: GABRA"):
        best_placement(objective, good_placement(objective.loads))
