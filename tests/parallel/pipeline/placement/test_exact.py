"""EXACT, and BLOCK of heavy and light layers, against every placement there is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest

from bpt.base.errors import PrototxtError
from bpt.config.plan.run_plan import PipelineSpec
from bpt.parallel.pipeline.placement import exact
from bpt.parallel.pipeline.placement.block import fastest_cut, genes_of
from bpt.parallel.pipeline.placement.device_placement import allocate
from bpt.parallel.pipeline.placement.exact import best_placement
from bpt.parallel.pipeline.placement.gabra import good_placement
from bpt.parallel.pipeline.placement.loads import Loads
from bpt.parallel.pipeline.placement.objective import UNFIT, Objective, Profit, StepTime, score
from bpt.parallel.pipeline.placement.problem import Cost, Crossing, Device, DeviceLink, Problem
from tests.parallel.pipeline.placement import problems


@pytest.mark.parametrize("rule", [problems.Param.GPIPE, problems.Param.ONE_F_ONE_B])
@pytest.mark.parametrize("tight", ["", "memory", "capacity"])
def test_step_time_of_all_placements(rule: int, tight: str) -> None:
    """Layer by layer, in a plain program."""
    found = 0
    for seed in range(25):
        problem = problems.random_problem(seed, 4 + seed % 3, 2 + seed % 2, tight == "memory", rule, sources=False)
        if tight == "capacity":
            problem = problems.capped(problem, seed)
        layers, devices = len(problem.costs), len(problem.devices)
        times = [
            problems.step_time(problem, stages)
            for stages in product(range(devices), repeat=layers)
            if len(set(stages)) == devices and problems.fits(problem, stages)
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
        problem = problems.random_problem(seed, 7, 3, tight == "memory")
        if tight == "capacity":
            problem = problems.capped(problem, seed)
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
    problem = problems.chain(
        [3, 5, 7, 11, 13, 17, 19, 23, 29, 31], [Device(str(i), 1 + i / 7) for i in range(4)], link=DeviceLink()
    )
    problem = replace(problem, micro_batches=64)
    objective = StepTime(Loads(problem, problem.cuts))
    with pytest.raises(PrototxtError, match=r"10 partitions on 4 devices are too many; use allocator: GABRA"):
        best_placement(objective, good_placement(objective.loads))


RULES = [problems.Param.GPIPE, problems.Param.ONE_F_ONE_B, problems.Param.SEQUENTIAL, problems.Param.DELAYED]


def brute_force(problem: Problem) -> tuple[float, list[float]] | None:
    """The least time of a step, and of the cuts that take at most 2 % more the best ``evenness``."""
    layers, devices = len(problem.costs), len(problem.devices)
    found = []
    for inner in combinations(problem.cuts[1:], devices - 1):
        starts = (0, *inner)
        stages = [sum(start <= layer for start in starts) - 1 for layer in range(layers)]
        if problems.fits(problem, stages):
            found.append((problems.step_time(problem, stages), evenness(problem, stages)))
    if not found:
        return None
    fastest = min(time for time, _ in found)
    return fastest, min(even for time, even in found if time <= 1.02 * (1 + 1e-10) * fastest)


def evenness(problem: Problem, stages: Sequence[int]) -> list[float]:
    """What the fullest device fills, what the emptiest one leaves, and the time: each decides between equals."""
    shares = problems.fills(problem, stages)
    return [round(max(shares), 9), -round(min(shares), 9), problems.step_time(problem, stages)]


@pytest.mark.parametrize("tight", ["", "memory", "capacity"])
@pytest.mark.parametrize("rule", RULES)
def test_best_of_all_cuts(rule: int, tight: str) -> None:
    solved = 0
    for seed in range(60):
        problem = problems.random_problem(seed, 4 + seed % 7, 1 + seed % 4, tight == "memory", rule)
        if tight == "capacity":
            problem = problems.capped(problem, seed)
        best = brute_force(problem) if len(problem.cuts) >= len(problem.devices) else None
        if best is None:
            with pytest.raises(PrototxtError):
                allocate(problem, PipelineSpec())
            continue
        placement = allocate(problem, PipelineSpec())
        stages = problems.stages_of(placement, len(problem.costs))
        assert problems.fits(problem, stages), seed
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
    assert allocate(problems.uneven(problems.Param.SEQUENTIAL, 20), PipelineSpec()).starts == (
        0,
        2,
    )  # 40.2 s; the fastest take 40.1 s
    assert fastest_cut(Loads(problems.uneven(problems.Param.SEQUENTIAL, 20), range(5))) != (0, 2)
    # At 2 bytes/s 42 s are more than 2 % above 41 s. Of the others, the cut before the last layer but one leaves
    # 300 bytes on the fullest device, as that behind the first one does with its 301.
    assert allocate(problems.uneven(problems.Param.SEQUENTIAL, 2), PipelineSpec()).starts == (0, 3)


def test_memory_counts_as_shares_where_it_is_known() -> None:
    """Cut behind the first layer, 1/10 and 3/4 of the devices are filled; before the last two, 3/10 and 1/4."""
    assert allocate(problems.uneven(problems.Param.SEQUENTIAL, 20, (1000, 405)), PipelineSpec()).starts == (0, 3)
    assert allocate(problems.uneven(problems.Param.SEQUENTIAL, 20, (1000, math.inf)), PipelineSpec()).starts == (0, 2)


def test_what_is_clearly_faster_is_taken() -> None:
    """Of two devices that work side by side, the slow one gets little, whatever its memory."""
    problem = replace(problems.uneven(problems.Param.DELAYED, math.inf), devices=(Device("slow", 1), Device("fast", 3)))
    assert allocate(problem, PipelineSpec()).starts == (0, 1)


def test_no_device_is_left_empty_beside_a_full_one() -> None:
    """The first layer fills its device in any case. The fastest cut leaves the loss alone; it saves a byte of 101."""
    costs = (Cost("huge", 1, 2, 900), Cost("a", 1, 2, 50), Cost("b", 1, 2, 50), Cost("loss", 0, 0, 1))
    crossings = (Crossing(0, (1,), 2.0), Crossing(1, (2,), 2.0), Crossing(2, (3,), 1.0))
    devices = tuple(Device(str(i)) for i in range(3))
    problem = Problem(costs, crossings, devices, DeviceLink(1, 100), rule=problems.Param.SEQUENTIAL)
    assert fastest_cut(Loads(problem, range(4))) in ((0, 1, 3), (0, 2, 3))
    assert allocate(problem, PipelineSpec()).starts == (0, 1, 2)
