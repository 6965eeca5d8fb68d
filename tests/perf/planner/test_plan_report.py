"""What the clock shows of a placement, stage by stage."""

from __future__ import annotations

from pathlib import Path

import pytest

from bpt.parallel.pipeline.pipeline_clock import Clock
from bpt.perf.planner.plan_layers import plan_solver
from bpt.perf.planner.plan_report import forecast_placement
from tests.support.plans import two_unlike


def test_neighbours_on_one_stage_are_one_segment(tmp_path: Path) -> None:
    plan = plan_solver(two_unlike(tmp_path))
    found = forecast_placement(Clock(plan.graph, plan.problem, 1, 0.0), (0, 2, 3), (0, 0, 1))
    assert [(segment.start, segment.end) for segment in found.segments] == [(0, 3), (3, 4)]
    assert found.partitions == (2, 1)
    assert found.seconds == pytest.approx(4.5)


def test_the_update_is_work_too(tmp_path: Path) -> None:
    """6 s at speed 1: 2 s on the first device, which has all parameters."""
    plan = plan_solver(two_unlike(tmp_path))
    found = forecast_placement(Clock(plan.graph, plan.problem, 1, 6.0), (0, 3), (0, 1))
    assert found.busy == pytest.approx((3 + 2, 3))
    assert found.seconds == pytest.approx(6.5)
