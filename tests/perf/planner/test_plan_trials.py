"""Trials of plans: which ones are worth a trial, and that a trial leaves no trace."""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from pathlib import Path

import pytest

from bpt.base.errors import LostRankError, RunError
from bpt.config.plan.resolve import read_plan
from bpt.config.plan.run_plan import RunPlan
from bpt.parallel.cgdp.tuner import Chunks
from bpt.perf.forecast.forecast import Forecast, forecast
from bpt.perf.planner import plan_trials
from bpt.perf.planner.plan_trials import CLOSE, LONGEST, MOST, contenders, time_plan
from bpt.system.comm.base import Communicator
from bpt.system.comm.serial import SerialCommunicator
from bpt.system.device import CPU
from bpt.train.runtime.runtime import Runtime
from bpt.train.solver.solver import Solver
from tests.support.doubles.thread_ranks import run_ranks
from tests.support.small_forecasts import nodes, small
from tests.support.small_solver import small_solver
from tests.support.spread_runs import Saved, set_up


def forecasts(folder: Path, *seconds: float) -> list[Forecast]:
    plan, costs = small(folder)
    made = forecast(plan, costs, nodes(1))
    return [replace(made, seconds=each) for each in seconds]


@pytest.mark.parametrize(
    ("seconds", "number"),
    [
        ([1.0], 1),
        ([1.0, CLOSE, CLOSE + 0.01], 2),
        ([1.0] * (MOST + 1), MOST),
        ([0.0] * (MOST + 1), MOST),
        ([LONGEST / 16 / 3.5] * MOST, 3),  # 16 iterations of each of three take less than LONGEST
        ([LONGEST / 16 / 1.5] * MOST, 1),  # of two, more
    ],
)
def test_what_is_worth_a_trial(tmp_path: Path, seconds: list[float], number: int) -> None:
    best = forecasts(tmp_path, *seconds)
    assert contenders(best) == best[:number]


WAYS = ["", "exchange: RING balance: DYNAMIC", "exchange: CGDP", "num_stages: 2"]


@pytest.mark.parametrize("way", WAYS)
def test_all_ranks_know_the_same_time_and_the_log_shows_nothing(
    tmp_path: Path, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    plan = small_solver(tmp_path, f"parallel_param {{ {way} }}")
    before = sorted(tmp_path.iterdir())
    with caplog.at_level(logging.INFO, "bpt"):
        one, other = run_ranks(2, lambda comm: time_plan(plan, CPU, comm))
        assert not caplog.records
        logging.getLogger("bpt").info("later lines are shown")
    assert one == other > 0
    assert [record.message for record in caplog.records] == ["later lines are shown"]
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("error", "is_known"), [(RunError("no memory"), True), (LostRankError("rank 1 is gone"), False)]
)
def test_a_plan_that_cannot_run_here_takes_for_ever_but_a_lost_rank_ends_the_job(
    tmp_path: Path, error: RunError, is_known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> Runtime:
        raise error

    monkeypatch.setattr(plan_trials, "bind", refuse)
    plan = small_solver(tmp_path)
    if is_known:
        assert time_plan(plan, CPU, SerialCommunicator()) == math.inf
    else:
        with pytest.raises(LostRankError):
            time_plan(plan, CPU, SerialCommunicator())


def test_no_search_for_chunks_falls_into_a_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The small net has two layers with weights: forecasts cut it into chunks of one."""
    lengths: list[tuple[int, ...]] = []
    use = Chunks.use

    def note(chunks: Chunks, cut: tuple[int, ...]) -> None:
        lengths.append(cut)
        use(chunks, cut)

    monkeypatch.setattr(Chunks, "use", note)
    plan = small_solver(tmp_path, "parallel_param { exchange: CGDP }")
    run_ranks(2, lambda comm: time_plan(plan, CPU, comm))
    assert lengths == [(1, 1)] * 2


def test_a_run_after_a_trial_is_the_same_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    set_up(tmp_path)

    def train(comm: Communicator, plan: RunPlan) -> None:
        with Solver(plan, world=comm) as solver:
            solver.solve()

    plan = read_plan("solver.prototxt", ["parallel_param { exchange: RING }"])
    run_ranks(2, lambda comm: train(comm, plan))
    straight = Saved.read(9)

    def train_after_a_trial(comm: Communicator) -> None:
        time_plan(plan, CPU, comm)
        train(comm, plan)

    run_ranks(2, train_after_a_trial)
    Saved.read(9).check(straight)
