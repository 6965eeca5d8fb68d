"""Stages with next to nothing to do."""

from __future__ import annotations

from bpt.placement.idle import idle_stages
from bpt.placement.problem import Device
from tests.placement.problems import chain

DEVICES = (Device("a"), Device("b"))


def test_less_than_a_hundredth_of_the_work() -> None:
    # 20 bytes a layer; the second device also holds the 8 that it receives.
    problem = chain([60, 39.5, 0.5], DEVICES)
    assert idle_stages(problem, (0, 2), (0, 1)) == [
        "stage 1 (b) has 0.5% of the work and 41.2% of what is held in memory; if that allows, fewer "
        "stages may be as fast"
    ]
    assert idle_stages(problem, (0, 1, 2), (0, 1, 0)) == []
    assert idle_stages(chain([60, 39, 1], DEVICES), (0, 2), (0, 1)) == []
    assert [line[:10] for line in idle_stages(problem, (0, 2), (1, 0))] == ["stage 0 (a"]


def test_no_work_at_all() -> None:
    assert idle_stages(chain([0, 0], DEVICES), (0, 1), (0, 1)) == []
