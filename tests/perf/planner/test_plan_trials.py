"""Trials of plans: which ones are worth a trial, and that a trial leaves no trace."""

from __future__ import annotations

import logging
import math
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from bpt.base.errors import LostRankError, RunError
from bpt.config.plan.resolve import read_plan
from bpt.config.plan.run_plan import RunPlan
from bpt.parallel.cgdp.tuner import Chunks
from bpt.perf.forecast.forecast import Forecast, forecast
from bpt.perf.planner import plan_trials
from bpt.perf.planner.plan_trials import CLOSE, ITERATIONS, LONGEST, MOST, contenders, time_plan
from bpt.system.comm.base import Communicator
from bpt.system.comm.serial import SerialCommunicator
from bpt.system.device import CPU
from bpt.train.runtime.binding import bind
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
        ([LONGEST / ITERATIONS / 3.5] * MOST, 3),  # so many iterations of three take less than LONGEST
        ([LONGEST / ITERATIONS / 1.5] * MOST, 1),  # of two, more
    ],
)
def test_what_is_worth_a_trial(tmp_path: Path, seconds: list[float], number: int) -> None:
    best = forecasts(tmp_path, *seconds)
    assert contenders(best) == best[:number]


WAYS = [
    "",
    "exchange: RING balance: DYNAMIC",
    "exchange: CGDP",
    "exchange: CGDP cgdp_param { chunking: MODEL }",
    "num_stages: 2",
]


@pytest.mark.parametrize("way", WAYS)
def test_all_ranks_know_the_same_time_and_the_log_shows_nothing(
    tmp_path: Path, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    plan = small_solver(tmp_path, f"parallel_param {{ {way} }}")
    before = sorted(tmp_path.iterdir())

    def time_it(comm: Communicator) -> float:
        seconds = time_plan(plan, CPU, comm)
        assert not comm.events.listens
        assert comm.events.flight is None or comm.events.flight.iteration == -1
        return seconds

    with caplog.at_level(logging.INFO, "bpt"):
        one, other = run_ranks(2, time_it)
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


SCHEDULES = [
    'lr_policy: "poly" power: 1 max_iter: 100 min_lr: 0.001',
    'lr_policy: "multistep" gamma: 0.1 stepvalue: 5 warmup_iter: 5 warmup_start_lr: 0.01',
    'lr_policy: "onecycle" max_iter: 100',
    "base_lr: 1e30",  # the loss of the second iteration would be NaN, which ends a run
    "snapshot: 1 display: 1",
]


@pytest.mark.parametrize("text", SCHEDULES)
def test_a_trial_changes_no_weights_whatever_the_schedule(
    tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights: list[list[Tensor]] = []

    def noted(*arguments: Any) -> Runtime:
        runtime = bind(*arguments)
        values = list(runtime.net.parameters())
        weights.append([each.detach().clone() for each in values])
        close = runtime.close

        def compare(failed: bool = False) -> None:
            assert runtime.iteration > 5
            torch.testing.assert_close(values, weights[-1], rtol=1e-4, atol=1e-5)
            close(failed)

        monkeypatch.setattr(runtime, "close", compare)
        return runtime

    monkeypatch.setattr(plan_trials, "bind", noted)
    plan = small_solver(tmp_path, text)
    before = sorted(tmp_path.iterdir())
    assert 0 < time_plan(plan, CPU, SerialCommunicator()) < math.inf
    assert weights and sorted(tmp_path.iterdir()) == before


def test_no_net_of_a_trial_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nets: list[weakref.ref[object]] = []

    def noted(*arguments: Any) -> Runtime:
        runtime = bind(*arguments)
        nets.append(weakref.ref(runtime.net))
        return runtime

    monkeypatch.setattr(plan_trials, "bind", noted)
    time_plan(small_solver(tmp_path), CPU, SerialCommunicator())
    assert [net() for net in nets] == [None]


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
