"""What a terminal shows of a run: the lines of the block, and the summary at the end, by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bpt.config.plan.nets import NetFields
from bpt.config.plan.run_plan import EarlyStoppingSpec, RunPlan
from bpt.train.state.best import Best
from bpt.train.telemetry.closing_summary import closing_lines
from bpt.train.telemetry.rank_loads import RankLoad, Scored
from bpt.train.telemetry.status_text import clock
from bpt.train.telemetry.training_status import TrainingStatus, slowest_line, status_lines

START = 1000.0  # on a clock that began some time
# 40 iterations in the 20 s since the 10th: half a second each, so 50 take 25 s.
RUNNING = TrainingStatus(
    started=START,
    log="out/lenet_1.log",
    message="    Test net output #0: accuracy = 0.75",
    net="LeNet",
    iteration=50,
    max_iter=100,
    paced=(10, START + 5),
    loss=0.123456,
    learning_rate=0.01,
    samples_a_second=128.04,
    judged="accuracy",
    score=0.75,
    best=Best(0.8, 30, 40, tests_since=1),
    snapshot="out/lenet_iter_40.solverstate",
)
NOW = START + 25


def test_before_the_net_is_built() -> None:
    status = TrainingStatus(ranks=4, started=START, log="a.log", message="Creating training net")
    assert list(status_lines(status, START + 2.4, 80)) == [
        "starting · 4 ranks · 0:00:02",
        "log a.log",
        "  Creating training net",
    ]


def test_during_the_run() -> None:
    assert list(status_lines(RUNNING, NOW, 60)) == [
        "LeNet · one process · 0:00:25",
        "[█████████████·············] 50 of 100 · 50 % · 0:00:25 left",
        "loss 0.1235 · lr 0.01 · 128 samples/s",
        "best accuracy 0.8 at iteration 30 · last 0.75",
        "snapshot out/lenet_iter_40.solverstate",
        "log out/lenet_1.log",
        "  Test net output #0: accuracy = 0.75",
    ]


def test_without_display_the_speed_is_that_of_the_iterations() -> None:
    status = replace(RUNNING, learning_rate=None, samples_a_second=None)
    assert list(status_lines(status, NOW, 80))[2] == "loss 0.1235 · 2 iterations/s"


def test_the_first_iteration_gives_no_pace() -> None:
    status = replace(RUNNING, iteration=10, loss=None, learning_rate=None, samples_a_second=None)
    lines = list(status_lines(status, NOW, 60))
    assert lines[1] == f"[████{'·' * 37}] 10 of 100 · 10 %"
    assert lines[2].startswith("best accuracy")


def test_lines_are_no_longer_than_the_terminal() -> None:
    assert all(len(line) <= 20 for line in status_lines(RUNNING, NOW, 20))
    assert "50 of 100" in "".join(status_lines(RUNNING, NOW, 40))


def test_the_slowest_rank() -> None:
    loads = [RankLoad("a", 0.02, 0.0, 0.0, 0.0, 0), RankLoad("b", 0.04, 0.01, 0.0, 0.0, 0)]
    ranks = [Scored(0, loads[0], 1.0, 1.0), Scored(1, loads[1], 0.4, 1.0)]
    assert slowest_line(ranks) == "slowest rank 1 (host b): 50 ms an iteration, the fastest 20 ms"
    assert slowest_line(ranks[:1]) == ""
    assert slowest_line(ranks) in status_lines(replace(RUNNING, slowest=slowest_line(ranks)), NOW, 80)


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0:00:00"), (59.6, "0:01:00"), (3723, "1:02:03")])
def test_clock(seconds: float, text: str) -> None:
    assert clock(seconds) == text


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunPlan:
    monkeypatch.chdir(tmp_path)
    nets = NetFields(net="nets/train val.prototxt")
    return RunPlan(nets=nets, path="solver.prototxt", test_iter=(20,), snapshot_prefix="out/lenet")


DONE = replace(
    RUNNING, iteration=100, score=0.9, best=Best(0.9, 100, 100), snapshot="out/lenet_iter_100.solverstate"
)  # fmt: skip


def test_the_summary(plan: RunPlan) -> None:
    assert list(closing_lines(DONE, plan, START + 61)) == [
        "LeNet: trained 100 iterations, in 0:01:01",
        "  best accuracy  0.9 at iteration 100",
        "  snapshot       out/lenet_iter_100.caffemodel",
        "  log            out/lenet_1.log",
        "  next           bpt test --model 'nets/train val.prototxt' --weights out/lenet_iter_100.caffemodel "
        "--iterations 20",
    ]


@pytest.mark.parametrize(("layer", "command"), [("Softmax", "classify"), ("DetectionOutput", "detect")])
def test_the_best_weights_and_the_text_for_use_come_next(plan: RunPlan, layer: str, command: str) -> None:
    Path("nets").mkdir()
    Path("nets/deploy.prototxt").write_text(f'layer {{ type: "{layer}" }}')
    status = replace(DONE, best_snapshot="out/lenet_best.solverstate.h5")
    *_, best, log, test, use = closing_lines(status, plan, NOW)
    assert best.split() == ["best", "snapshot", "out/lenet_best.caffemodel.h5"]
    assert log.split()[0] == "log"
    assert "--weights out/lenet_best.caffemodel.h5 --iterations" in test
    assert use.strip() == f"bpt {command} --model nets/deploy.prototxt --weights out/lenet_best.caffemodel.h5 PICTURE"


def test_a_run_that_was_stopped(plan: RunPlan) -> None:
    first, *_, last = closing_lines(RUNNING, plan, NOW)
    assert first == "LeNet: stopped at iteration 50 of 100, in 0:00:25"
    assert last.strip() == "next           bpt train --solver solver.prototxt --snapshot out/lenet_iter_40.solverstate"


def test_a_run_that_tests_have_stopped_is_done(plan: RunPlan) -> None:
    stopping = EarlyStoppingSpec(output="accuracy", patience=3)
    plan = replace(plan, early_stopping_param=stopping, set_fields=frozenset({("early_stopping_param",)}))
    status = replace(RUNNING, best=Best(0.8, 20, 50, tests_since=3))
    first, *_, last = closing_lines(status, plan, NOW)
    assert first == "LeNet: trained 50 iterations, in 0:00:25"
    assert "bpt test" in last


def test_a_run_without_tests_and_files(plan: RunPlan) -> None:
    status = TrainingStatus(started=START, net="small", iteration=3, max_iter=3, loss=0.5)
    assert list(closing_lines(status, plan, START + 1)) == ["small: trained 3 iterations, in 0:00:01", "  loss  0.5"]


def test_a_run_that_had_nothing_to_train(plan: RunPlan) -> None:
    assert list(closing_lines(replace(DONE, first=100), plan, NOW)) == []
