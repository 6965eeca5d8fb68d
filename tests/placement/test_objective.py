"""Eq. 3 to 6 of the Hybrid paper, and the time of a step, worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from bpt.placement.loads import Loads
from bpt.placement.objective import UNFIT, Profit, StepTime, guided_score, score
from bpt.placement.problem import Device, Link
from tests.placement.problems import chain


def test_profit() -> None:
    # Work 4 2 2 of 8: p = 1/2 1/4 1/4. The reference 0 0 1 takes 6/2 = 3 s and 2 s: T = 3, d = 2·3/8 and 1·3/8.
    loads = Loads(chain([4, 2, 2], [Device("fast", 2), Device("slow", 1)]), range(3))
    profit = Profit(loads, np.array([0, 0, 1]))
    assert profit.p.tolist() == [0.5, 0.25, 0.25]
    assert profit.d.tolist() == [0.75, 0.375]
    genes = np.array([[0, 0, 1], [0, 1, 0], [1, 0, 0], [0, 1, 1], [0, 0, 0]])
    # Eq. 3: c = 2/3 and 4/3 for the first partition, 1/3 and 2/3 for the others; Eq. 5 adds up.
    np.testing.assert_allclose(profit.profit(genes), [5 / 3, 5 / 3, 2, 2, 4 / 3])
    np.testing.assert_allclose(profit.filled(genes), [[0.75, 0.25], [0.75, 0.25], [0.5, 0.5], [0.5, 0.5], [1, 0]])
    # Eq. 6: the slow device may have 3/8, the fast one 3/4.
    np.testing.assert_allclose(profit.lack(genes), [[0, 0], [0, 0], [0, 0.5 - 0.375], [0, 0.125], [0.25, 0]])
    scores = score(profit, genes)
    np.testing.assert_allclose(scores[:2], [-5 / 3, -5 / 3])
    assert (scores[2:] >= UNFIT).all()
    assert profit.fitness_of(scores[:1]) == pytest.approx(5 / 3)


def test_step_time() -> None:
    # 8 bytes at 16 bytes/s, there and back: 1 s a border.
    devices = [Device("fast", 2, memory=60), Device("slow", 1)]
    step = StepTime(Loads(chain([4, 2, 2], devices, link=Link(0, 16)), range(3)))
    genes = np.array([[0, 0, 1], [0, 1, 0], [1, 0, 0], [0, 0, 0]])
    assert step.cost(genes).tolist() == [4, 5, 5, 4]  # 3+1 2+1; 3+2 2+2; 2+1 4+1; 4 0
    assert step.fitness_of(step.cost(genes)).tolist() == [0.25, 0.2, 0.2, 0.25]
    assert step.pressed(genes).tolist() == [0, 0, 1, 0]
    scores, guides = guided_score(step, genes)
    assert scores[:3].tolist() == [4, 5, 5]
    assert scores[3] >= UNFIT  # nothing on the slow one
    np.testing.assert_allclose(guides[:3], [4 + 0.035, 5 + 0.045, 5 + 0.04])
    assert step.bound() == 8 / 3  # all at once; the heaviest alone takes 2


def test_memory_is_a_limit_of_both() -> None:
    devices = [Device("small", 1, memory=48), Device("large", 1)]
    loads = Loads(chain([1, 1, 1, 1], devices), range(4))  # 20 bytes a layer; 8 more for a blob received
    fitting, large = np.array([[0, 1, 1, 0]]), np.array([[0, 0, 0, 1]])
    assert loads.held(fitting).tolist() == [[48, 48]]
    assert loads.held(large).tolist() == [[60, 28]]
    for objective in (StepTime(loads), Profit(loads, large[0])):
        assert score(objective, fitting)[0] < UNFIT <= score(objective, large)[0]
        assert objective.lack(large).tolist() == [[pytest.approx(12 / 88), 0]]
