"""Eq. 3 to 6 of the Hybrid paper, and the time of a step, worked by hand."""

from __future__ import annotations

import random

import numpy as np
import pytest

from bpt.parallel.pipeline.placement.loads import Loads
from bpt.parallel.pipeline.placement.objective import UNFIT, Profit, StepTime, guided_score, score
from bpt.parallel.pipeline.placement.problem import Device, DeviceLink
from tests.parallel.pipeline.placement.problems import Param, chain, random_problem


def test_profit() -> None:
    # Work 4 2 2 of 8: p = 1/2 1/4 1/4. The reference 0 0 1 takes 6/2 = 3 s and 2 s: T = 3, d = 2·3/8 and 1·3/8.
    loads = Loads(chain([4, 2, 2], [Device("fast", 2), Device("slow", 1)]), range(3))
    profit = Profit(loads, np.array([0, 0, 1]))
    assert profit.p.tolist() == [0.5, 0.25, 0.25]
    assert profit.d.tolist() == [0.75, 0.375]
    genes = np.array([[0, 0, 1], [0, 1, 0], [1, 0, 0], [0, 1, 1], [0, 0, 0]])
    # Eq. 3: c = 2/3 and 4/3 for the first partition, 1/3 and 2/3 for the others; Eq. 5 adds up.
    np.testing.assert_allclose(profit.profit(genes), [5 / 3, 5 / 3, 2, 2, 4 / 3])
    np.testing.assert_allclose(profit.filled(genes), [[0.75, 0.25], [0.75, 0.25], [0.5, 0.5], [0.5, 0.5], [1.0, 0.0]])
    # Eq. 6: the slow device may have 3/8, the fast one 3/4.
    overload = [[0.0, 0.0], [0.0, 0.0], [0.0, 0.125], [0.0, 0.125], [0.25, 0.0]]
    np.testing.assert_allclose(profit.overload(genes), overload)
    scores = score(profit, genes)
    np.testing.assert_allclose(scores[:2], [-5 / 3, -5 / 3])
    assert (scores[2:] >= UNFIT).all()
    assert profit.fitness_of(scores[:1]) == pytest.approx(5 / 3)


def test_profit_by_capacities_that_are_given() -> None:
    """Eq. 3 to 6 with d = 3/4 and 1/2, whatever the speeds are; one that is not given is by the speed."""
    devices = [Device("a", 2, capacity=0.75), Device("b", 1, capacity=0.5)]
    loads = Loads(chain([4, 2, 2], devices), range(3))
    profit = Profit(loads, np.array([0, 0, 1]))
    assert profit.d.tolist() == [0.75, 0.5]
    genes = np.array([[0, 0, 1], [1, 0, 0], [0, 1, 1], [0, 0, 0]])
    # c = 2/3 and 1 for the first partition, 1/3 and 1/2 for the others.
    np.testing.assert_allclose(profit.profit(genes), [3 / 2, 5 / 3, 5 / 3, 4 / 3])
    np.testing.assert_allclose(profit.overload(genes), [[0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [0.25, 0.0]])
    step = StepTime(loads)
    assert (score(step, genes) < UNFIT).tolist() == [True, True, True, False]
    loads = Loads(chain([4, 2, 2], [devices[0], Device("b", 1)]), range(3))
    assert Profit(loads, np.array([0, 0, 1])).d.tolist() == [0.75, 0.375]


def test_step_time() -> None:
    # 8 bytes at 16 bytes/s, there and back: 1 s a border.
    devices = [Device("fast", 2, memory=60), Device("slow", 1)]
    problem = chain([4, 2, 2], devices, link=DeviceLink(0, 16), micro_batches=2)
    step = StepTime(Loads(problem, range(3)))
    genes = np.array([[0, 0, 1], [0, 1, 0], [1, 0, 0], [0, 0, 0]])
    # The devices: 3 2; 3 2; 2 4; 4 0. All in a row, with a second for each border: 6, 7, 7, 4. Half of each.
    assert step.cost(genes).tolist() == [4.5, 5, 5.5, 4]
    assert step.fitness_of(np.array([5.0, 4.0])).tolist() == [0.2, 0.25]
    assert step.device_to_relieve(genes).tolist() == [0, 0, 1, 0]
    scores, guides = guided_score(step, genes)
    assert scores[:3].tolist() == [4.5, 5, 5.5]
    assert scores[3] >= UNFIT  # nothing on the slow one
    np.testing.assert_allclose(guides[:3], [4.5 + 0.03, 5 + 0.035, 5.5 + 0.035])
    # If the slow one has 2 of the work, both take 2 and 3 s; with 8/3 both end together, but 16/3 s are spent in all.
    assert step.bound() == pytest.approx((3 + 5) / 2)


@pytest.mark.parametrize(
    ("rule", "cost"), [(Param.GPIPE, 4.5), (Param.ONE_F_ONE_B, 4.5), (Param.SEQUENTIAL, 6), (Param.DELAYED, 3)]
)
def test_what_overlaps(rule: int, cost: float) -> None:
    devices = [Device("fast", 2), Device("slow", 1)]
    problem = chain([4, 2, 2], devices, link=DeviceLink(0, 16), micro_batches=2, rule=rule)
    assert StepTime(Loads(problem, range(3))).cost(np.array([[0, 0, 1]])) == [cost]


def test_a_link_that_is_the_slowest() -> None:
    """8 bytes at 2 bytes/s, there and back: 8 s."""
    devices = [Device("fast", 2), Device("slow", 1)]
    step = StepTime(Loads(chain([4, 2, 2], devices, link=DeviceLink(0, 2), micro_batches=4), range(3)))
    genes = np.array([[0, 0, 1], [0, 1, 0]])
    # To the second device 8 s; of two borders one leads back to the first. In a row: 3 + 2 + 8, 3 + 2 + 16.
    assert step.cost(genes).tolist() == [(3 * 8 + 13) / 4, (3 * 8 + 21) / 4]
    assert step.device_to_relieve(genes).tolist() == [1, 0]


@pytest.mark.parametrize("link", [DeviceLink(), DeviceLink(0.01, 40.0)])
def test_a_pipeline_that_fills(link: DeviceLink) -> None:
    """A plain clock: devices and links take micro-batches in order, each when the place before has done with it."""
    for seed in range(30):
        rng = random.Random(seed)
        devices = [Device(str(j), rng.uniform(0.5, 2)) for j in range(rng.randint(1, 4))]
        micros = rng.randint(1, 9)
        problem = chain([rng.uniform(1, 5) for _ in range(6)], devices, micro_batches=micros, link=link)
        genes = sorted([*range(len(devices)), *(rng.randrange(len(devices)) for _ in range(6 - len(devices)))])
        seconds = [
            sum(cost.work for cost, gene in zip(problem.costs, genes, strict=True) if gene == j) / device.speed / micros
            for j, device in enumerate(devices)
        ]
        for j in range(len(devices) - 1, 0, -1):
            seconds.insert(j, 2 * link.seconds(8 / micros))
        free = [0.0] * len(seconds)
        for _ in range(micros):
            done = 0.0
            for j, time in enumerate(seconds):
                free[j] = done = max(done, free[j]) + time
        assert StepTime(Loads(problem, range(6))).cost(np.array([genes]))[0] == pytest.approx(done)


def test_memory_is_a_limit_of_both() -> None:
    devices = [Device("small", 1, memory=48), Device("large", 1)]
    loads = Loads(chain([1, 1, 1, 1], devices), range(4))  # 20 bytes a layer; 8 more for a blob received
    fitting, large = np.array([[0, 1, 1, 0]]), np.array([[0, 0, 0, 1]])
    assert loads.memory_of(fitting).tolist() == [[48, 48]]
    assert loads.memory_of(large).tolist() == [[60, 28]]
    for objective in (StepTime(loads), Profit(loads, large[0])):
        assert score(objective, fitting)[0] < UNFIT <= score(objective, large)[0]
        assert objective.overload(large).tolist() == [[pytest.approx(12 / 88), 0]]


def test_what_is_not_better_is_not_judged() -> None:
    """What beats a score or a guide gets what it gets without them; all else is unfit, and so is chosen by nobody."""
    asked = left = 0
    for seed in range(30):
        loads = Loads(problem := random_problem(seed, 8, 3, tight=True), problem.cuts)
        genes = np.random.default_rng(seed).integers(0, 3, (200, loads.n))
        for objective in (StepTime(loads), Profit(loads, genes[0])):
            plain, guides = guided_score(objective, genes)
            assert plain.tolist() == score(objective, genes).tolist()
            limits = np.where(np.arange(200) % 5 > 0, np.median(objective.guide(genes), axis=1)[:, None], 2 * UNFIT)
            found, guided = guided_score(objective, genes, *limits)
            better = (plain < limits[0]) | (guides < limits[1])
            assert found[better].tolist() == plain[better].tolist()
            assert guided[better].tolist() == guides[better].tolist()
            assert (found[~better] >= UNFIT).all() and (guided[~better] >= UNFIT).all()
            asked, left = asked + int((plain[better] < UNFIT).sum()), left + int((plain[~better] < UNFIT).sum())
    assert asked and left
