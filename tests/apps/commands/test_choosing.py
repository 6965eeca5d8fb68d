"""auto: true on ranks that are threads: what is measured is told here, in round numbers."""

from __future__ import annotations

import logging
import math
from pathlib import Path

import pytest

from bpt.apps.commands import choosing
from bpt.apps.commands.choosing import choose
from bpt.base.errors import UserError
from bpt.config.plan.chosen import text_of
from bpt.config.plan.resolve import read_plan
from bpt.config.plan.run_plan import RunPlan
from bpt.config.proto import bpt_pb2 as pb
from bpt.parallel.cluster.cluster import Cluster
from bpt.system.comm.base import Communicator
from bpt.system.comm.serial import SerialCommunicator
from bpt.system.device import CPU
from bpt.train.runtime.train_options import TrainOptions
from bpt.train.solver.solver import Solver
from bpt.train.state import in_memory
from tests.support.doubles.thread_ranks import run_ranks
from tests.support.small_forecasts import BYTES, nodes
from tests.support.small_solver import small_solver
from tests.support.spread_runs import Saved, read_state, set_up

AUTO = "parallel_param { auto: true }"
UNLIKE = nodes(3, 1, latency=1e-4, bandwidth=BYTES * 100)
FAST = nodes(30, 10, latency=1e-4, bandwidth=BYTES * 100)  # trials take less than two minutes


@pytest.fixture(autouse=True)
def measured(monkeypatch: pytest.MonkeyPatch) -> list[Cluster]:
    """The cluster that will be measured, the last of these; none if this is empty."""
    clusters = [UNLIKE]
    monkeypatch.setattr(choosing, "measured_cluster", lambda *_: clusters[-1])
    monkeypatch.setattr(choosing, "time_plan", lambda *_: 1.0)  # in trials all plans are equally fast
    return clusters


def chosen(plan: RunPlan, ranks: int = 2, resume: str = "") -> str:
    """What all ranks choose."""
    (found,) = {text_of(each) for each in run_ranks(ranks, lambda comm: choose(plan, comm, CPU, resume).plan)}
    return found


def test_unlike_ranks_get_unlike_shares(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Of 8 samples 6 and 2: 2 s, where even shares take 4."""
    with caplog.at_level(logging.INFO, "bpt"):
        assert "balance: DYNAMIC" in chosen(small_solver(tmp_path, AUTO))
    assert "Auto: measured node0: 1 x 3 samples/s, node1: 1 x 1 samples/s" in caplog.text
    assert "Bottleneck: computing" in caplog.text
    assert "Plain data parallelism: 4,0" in caplog.text


@pytest.mark.parametrize(("seconds", "ring_is_chosen"), [(0.97, True), (0.99, False)])
def test_a_plan_is_chosen_that_a_trial_shows_to_be_clearly_faster_than_the_one_with_the_best_forecast(
    tmp_path: Path,
    seconds: float,
    ring_is_chosen: bool,
    measured: list[Cluster],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def time_plan(plan: RunPlan, *_: object) -> float:
        return seconds if "RING" in text_of(plan) else 1.0

    measured.append(FAST)
    monkeypatch.setattr(choosing, "time_plan", time_plan)
    with caplog.at_level(logging.INFO, "bpt"):
        assert ("RING" in chosen(small_solver(tmp_path, AUTO))) == ring_is_chosen
    assert f"Auto: {seconds * 1e3:.0f} ms an iteration, 210.4 expected: parallel_param {{ exchange: RING" in caplog.text


def test_a_plan_that_cannot_run_is_not_chosen(
    tmp_path: Path, measured: list[Cluster], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    measured.append(FAST)
    monkeypatch.setattr(choosing, "time_plan", lambda plan, *_: math.inf if "CGDP" in text_of(plan) else 1.0)
    with caplog.at_level(logging.INFO, "bpt"):
        assert chosen(small_solver(tmp_path, AUTO)) == "parallel_param { balance: DYNAMIC }"
    assert "Auto: cannot run here, 203.8 expected: parallel_param { exchange: CGDP balance: DYNAMIC }" in caplog.text
    monkeypatch.setattr(choosing, "time_plan", lambda *_: math.inf)
    assert "CGDP" in chosen(small_solver(tmp_path, AUTO))  # the run itself says why it cannot


def test_what_is_set_stands(tmp_path: Path) -> None:
    own = small_solver(tmp_path, "parallel_param { auto: true exchange: TREE balance: UNIFORM num_stages: 1 }")
    assert chosen(own) in ("parallel_param { exchange: TREE }", "parallel_param { num_shards: 2 exchange: TREE }")
    assert chosen(small_solver(tmp_path)) == "parallel_param { }"  # nothing is to be chosen
    assert choose(own, SerialCommunicator(), CPU).plan is own


@pytest.mark.parametrize(
    ("overrides", "cluster", "message"),
    [
        ("auto: true num_stages: 3", UNLIKE, "allow no plan on 2 ranks"),
        ("auto: true", nodes(1, 1, memory=10), "no plan fits into the memory of 2 ranks"),
    ],
)
def test_refusals(tmp_path: Path, overrides: str, cluster: Cluster, message: str, measured: list[Cluster]) -> None:
    measured.append(cluster)
    with pytest.raises(UserError, match=message):
        chosen(small_solver(tmp_path, f"parallel_param {{ {overrides} }}"))


def test_a_run_that_goes_on_keeps_its_plan_and_its_curve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, measured: list[Cluster], caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    set_up(tmp_path)
    auto = "parallel_param { auto: true exchange: RING num_shards: 1 num_stages: 1 sync_batch_norm: true }"

    def train(comm: Communicator, *overrides: str, resume: str = "") -> str:
        plan = choose(read_plan("solver.prototxt", overrides), comm, CPU, resume).plan
        with Solver(plan, TrainOptions(resume=resume), world=comm) as solver:
            solver.solve()
        return text_of(plan)

    train(SerialCommunicator())
    straight = Saved.read(9)
    unlike = "parallel_param { exchange: RING balance: DYNAMIC }"
    assert run_ranks(2, lambda comm: train(comm, auto, "max_iter: 5")) == [unlike] * 2
    assert read_state(5).ranks == 2
    measured.append(nodes(1, 1))
    state = "small_iter_5.solverstate"
    assert run_ranks(2, lambda comm: train(comm, auto, resume=state)) == [unlike] * 2
    ended = Saved.read(9)
    for field in ("shares", "chosen", "ranks"):
        ended.rest.ClearField(field)
    ended.check(straight)
    with caplog.at_level(logging.INFO, "bpt"):
        plan = read_plan("solver.prototxt", ["parallel_param { auto: true num_stages: 3 }"])
        with pytest.raises(UserError, match="allow no plan on 2 ranks"):
            chosen(plan, resume=state)
        assert "the snapshot's plan contradicts the solver's present text" in caplog.text
        caplog.clear()
        other = read_plan("solver.prototxt", ["parallel_param { auto: true exchange: TREE }"])
        assert "TREE" in chosen(other, resume=state)  # a plan of its own, and not the snapshot's with another exchange
        assert "the snapshot's plan contradicts the solver's present text" in caplog.text
        measured.append(nodes(1, 1, 1))
        assert chosen(read_plan("solver.prototxt", [auto]), 3, "auto") == "parallel_param { exchange: RING }"
        assert "the snapshot's plan is for 2 ranks, but the job has 3" in caplog.text


def test_a_snapshot_in_memory_is_the_newest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Only what is on disk was looked at once, so a run went on from memory by a plan that was searched for anew."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(in_memory, "place_in_memory", lambda: tmp_path)
    plan = small_solver(tmp_path, AUTO)
    kept = pb.SolverState(iter=3, ranks=2, chosen=pb.ParallelParameter(num_shards=2))
    Path(f"{in_memory.make_room(plan.snapshot_prefix)}_iter_3.solverstate").write_bytes(kept.SerializeToString())
    with caplog.at_level(logging.INFO, "bpt"):
        assert chosen(plan, resume="auto") == "parallel_param { num_shards: 2 }"
    assert "Auto: using the plan of the snapshot" in caplog.text
