"""What placements ask of devices."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from bpt.parallel.pipeline.placement.loads import AT_ONCE, Loads, idle_stages
from bpt.parallel.pipeline.placement.partition import partitions
from bpt.parallel.pipeline.placement.problem import Cost, Crossing, Device, DeviceLink, Placement, Problem
from tests.parallel.pipeline.placement import problems


def test_by_hand() -> None:
    # 0 data → 1 → 2 → 3; 1 is read by 2 and 3; the data are read by 1 and 3.
    costs = (Cost("in", 0, 0, 0, 5), Cost("a", 1, 2, 100, 10), Cost("b", 2, 4, 200, 20), Cost("c", 1, 1, 300, 30))
    crossings = (Crossing(0, (1, 3), 4, False), Crossing(1, (2, 3), 8), Crossing(2, (3,), 16))
    devices = (Device("d", 2), Device("e", 1))
    problem = Problem(costs, crossings, devices, DeviceLink(0.5, 8), together=((0, 2),), micro_batches=2, sources=(0,))
    loads = Loads(problem, problem.cuts)
    genes = np.array([[0, 1, 1], [0, 1, 0], [1, 0, 1]])
    # One way: 2 · 0.5 + bytes / 8 s: data 1.5, a 2, b 3; with its diff a 4 and b 6.
    # 0 1 1: a goes once, data once. 0 1 0: a there, b back. 1 0 1: data (once) and b there, a back.
    assert loads.working(genes).tolist() == [[3 / 2, 8], [5 / 2, 6], [3, 5]]
    assert loads.received(genes).tolist() == [[0, 5.5], [6, 4], [4, 7.5]]
    assert loads.memory_of(genes).tolist() == [
        [5 + 110, 220 + 330 + 8 + 4],
        [5 + 110 + 330 + 16, 220 + 8],
        [5 + 220 + 8, 110 + 330 + 16 + 4],
    ]
    assert loads.idle(np.array([[0, 0, 0], [0, 1, 0]])).tolist() == [1, 0]


def test_copies_of_delayed_and_gradients_that_are_added() -> None:
    """Trained values of 4, 6 and 8 bytes; their largest blobs have 3, 5 and 2."""
    costs = tuple(Cost(str(i), 1, 2, 100, 10, *more) for i, more in enumerate(((4, 3), (6, 5), (8, 2))))
    devices = tuple(Device(str(i)) for i in range(3))
    genes = np.array([[0, 1, 2], [0, 0, 1]])
    delayed = Loads(Problem(costs, (), devices, rule=problems.Param.DELAYED), range(3))
    assert delayed.weights(genes).tolist() == [[100 + 2 * 4, 100 + 6, 100], [200 + 4 + 6, 100, 0]]
    assert delayed.blobs(genes).tolist() == [[30, 20, 10], [40, 10, 0]]
    adding = Loads(Problem(costs, (), devices, micro_batches=2, adds=True), range(3))
    assert adding.weights(genes).tolist() == [[103, 105, 102], [205, 102, 0]]
    assert adding.memory_of(genes).tolist() == [[113, 115, 112], [225, 112, 0]]
    assert Loads(adding.problem, (0, 2)).weights(np.array([[0, 1]])).tolist() == [[205, 102, 0]]


def test_alive() -> None:
    devices = tuple(Device(str(i)) for i in range(3))
    costs = tuple(Cost(str(i), 1, 2, 0, 8) for i in range(5))
    genes = np.array([[0, 0, 1, 2, 2], [0, 1, 0, 2, 1]])
    whole = [[1.0] * 5] * 2
    expected = {
        problems.Param.GPIPE: whole,
        problems.Param.SEQUENTIAL: [[0.25] * 5] * 2,
        problems.Param.ONE_F_ONE_B: [[0.75, 0.75, 0.5, 0.25, 0.25], [1, 1, 0.75, 0.5, 0.25]],
        problems.Param.DELAYED: [[3, 3, 2, 1, 1], [5, 4, 3, 2, 1]],
        problems.Param.ZERO_BUBBLE: [[0.75] * 5, [1.0] * 5],
    }
    for rule, alive in expected.items():
        loads = Loads(Problem(costs, (), devices, rule=rule, micro_batches=4), range(5))
        assert loads.alive(genes).tolist() == alive


@pytest.mark.parametrize("recomputes", [False, True])
@pytest.mark.parametrize("rule", problems.Param.Schedule.values())
def test_plain_reckoning(rule: int, recomputes: bool) -> None:
    rng = random.Random(rule)
    for seed in range(60):
        problem = problems.random_problem(seed, rng.randrange(3, 14), rng.randrange(1, 4), True, rule)
        problem = replace(problem, recomputes=recomputes)
        if len(problem.cuts) < len(problem.devices):
            continue
        loads = Loads(problem, partitions(problem, rng.randrange(len(problem.devices), len(problem.cuts) + 1)))
        genes = np.array([[rng.randrange(loads.m) for _ in range(loads.n)] for _ in range(5)])
        layers = [problems.stages_of(Placement(loads.starts, tuple(row)), len(problem.costs)) for row in genes.tolist()]
        np.testing.assert_allclose(loads.working(genes), [problems.working(problem, stages) for stages in layers])
        np.testing.assert_allclose(loads.received(genes), [problems.received(problem, stages) for stages in layers])
        np.testing.assert_allclose(loads.memory_of(genes), [problems.memory(problem, stages) for stages in layers])
        assert (loads.memory_of(genes) <= loads.memory_bound * (1 + 1e-9)).all()


@pytest.mark.parametrize("rule", [problems.Param.GPIPE, problems.Param.ONE_F_ONE_B])
def test_many_at_once(rule: int) -> None:
    """As each of them alone, though they are reckoned in several blocks."""
    loads = Loads(problem := problems.random_problem(2, 40, 4, True, rule), problem.cuts)
    genes = np.random.default_rng(0).integers(0, 4, (2000, loads.n))
    assert len(genes) * (loads.n + len(loads.crossings.pair_reader)) > 2 * AT_ONCE
    for load in (loads.working, loads.received, loads.memory_of):
        np.testing.assert_allclose(load(genes), np.concatenate([load(row[None]) for row in genes]), rtol=1e-12)
        assert load(genes[:0]).shape == (0, 4)


DEVICES = (Device("a"), Device("b"))


def test_less_than_a_hundredth_of_the_work() -> None:
    # 20 bytes a layer; the second device also holds the 8 that it receives.
    problem = problems.chain([60, 39.5, 0.5], DEVICES)
    assert idle_stages(problem, (0, 2), (0, 1)) == [
        "stage 1 (b) has 0.5% of the work and 41.2% of the memory; if memory allows it, fewer stages may be as fast"
    ]
    assert idle_stages(problem, (0, 1, 2), (0, 1, 0)) == []
    assert idle_stages(problems.chain([60, 39, 1], DEVICES), (0, 2), (0, 1)) == []
    assert [line[:10] for line in idle_stages(problem, (0, 2), (1, 0))] == ["stage 0 (a"]


def test_no_work_at_all() -> None:
    assert idle_stages(problems.chain([0, 0], DEVICES), (0, 1), (0, 1)) == []
