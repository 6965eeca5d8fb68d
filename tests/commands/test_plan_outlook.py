"""What segments and messages take."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bpt.commands.plan import plan_solver
from bpt.commands.plan_outlook import StageTimes, outlook, size_of
from bpt.errors import PrototxtError
from bpt.placement.problem import Link
from bpt.proto import bpt_pb2 as pb
from tests.commands.plans import two_unlike


def test_times_of_a_micro_batch(tmp_path: Path) -> None:
    """ip's 96 bytes travel in two parts, each 0.5 s late and at 48 bytes a second."""
    plan = plan_solver(two_unlike(tmp_path))
    problem = replace(plan.problem, link=Link(0.5, 48))
    chosen = plan.chosen
    times = StageTimes(problem, chosen.segments, chosen.transfers, update=6.0).own(chosen.stages)
    assert times.forward(0, 0) == pytest.approx(0.5)
    assert times.backward(0, 0) == pytest.approx(1.0)
    assert times.forward(1, 1) == pytest.approx(0.5)
    assert [size_of(transfer) for transfer in chosen.transfers] == [32, 96]
    assert times.transfer(1, diff=False) == times.transfer(1, diff=True) == pytest.approx(1.5)
    assert times.update(0) == pytest.approx(2.0)
    assert times.update(1) == times.exchange(0, 0) == 0


def test_messages_count(tmp_path: Path) -> None:
    """One micro-batch: 1 s, message, 3 s, message, 2 s. Labels go ahead, during the first forward."""
    plan = plan_solver(two_unlike(tmp_path))
    problem = replace(plan.problem, micro_batches=1, link=Link(0.0, 48))
    found = outlook(plan.graph, problem, (0, 3), (0, 1), 1, 0.0)
    assert found.seconds == pytest.approx(1 + 2 + 3 + 2 + 2)


def test_neighbours_on_one_stage_are_one_segment(tmp_path: Path) -> None:
    plan = plan_solver(two_unlike(tmp_path))
    found = outlook(plan.graph, plan.problem, (0, 2, 3), (0, 0, 1), 1, 0.0)
    assert [(segment.start, segment.end) for segment in found.segments] == [(0, 3), (3, 4)]
    assert found.partitions == (2, 1)
    assert found.seconds == pytest.approx(4.5)


def test_delayed_needs_stages_in_order(tmp_path: Path) -> None:
    plan = plan_solver(two_unlike(tmp_path))
    problem = replace(plan.problem, rule=pb.PipelineParameter.DELAYED, micro_batches=1)
    with pytest.raises(PrototxtError, match="DELAYED needs stages of consecutive layers"):
        outlook(plan.graph, problem, (0, 2, 3), (0, 1, 0), 1, 0.0)
