"""The arithmetic, texts and files of ``scripts/bench balance``; what it measures takes a quiet machine and root."""

from __future__ import annotations

import csv
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bpt.config.plan.resolve import read_plan
from bpt.config.proto import bpt_pb2 as pb
from bpt.nn.net_graph import build_graph_of
from bpt.perf.speeds.survey import SurveyLimits
from scripts.benches.balance import bench, figures, nets, ranks
from scripts.benches.balance.bench import Place
from scripts.benches.balance.nets import NETS, parameters, write_solver
from scripts.benches.balance.results import (
    ACCURACIES,
    SPEEDUPS,
    TIMES,
    Compared,
    Outcome,
    Turn,
    accuracy_rows,
    curve_rows,
    ideal_seconds,
    outcomes,
    report,
    speedup_row,
    time_rows,
)
from scripts.benches.harness import curve
from scripts.benches.harness.replicas import unlike_shares
from scripts.benches.harness.tables import Tables
from scripts.benches.harness.testbed import call
from tests.support.bench_arguments import parse
from tests.support.doubles.thread_ranks import run_ranks
from tests.support.marks import slow
from tests.support.paths import ROOT


def test_ideal_seconds() -> None:
    # 80 and 20 samples a second: 100 samples in 1 s.
    assert ideal_seconds([80, 20], [1.0, 1.0]) == pytest.approx(1.0)
    # 60 in 0.5 s and 40 in 2 s: 120 and 20 a second; 100 / 140.
    assert ideal_seconds([60, 40], [0.5, 2.0]) == pytest.approx(100 / 140)
    assert ideal_seconds([10, 0], [2.0, 0.0]) == pytest.approx(2.0)


SIDES = {
    "UNIFORM": Outcome(
        (50, 50),
        (
            Turn(2.2, (0.5, 2.0), (1.7, 0.1)),
            Turn(9.9, (0.7, 8.0), (9.2, 1.9)),  # something else went on
            Turn(2.1, (0.4, 2.1), (1.5, 0.0)),
        ),
    ),
    "STATIC": Outcome((80, 20), (Turn(1.1, (0.8, 1.0), (0.3, 0.1)),)),
}


# An epoch of 1000 samples is 10 iterations.
PREDICTED = {"UNIFORM": [0.5, 2.0], "STATIC": [1.0, 1.0]}
RESULT = Compared("small", ["a", "b"], PREDICTED, SIDES, epoch=1000, parameters=7)


def test_an_outcome_is_the_median_of_its_turns() -> None:
    uniform = SIDES["UNIFORM"]
    assert uniform.seconds == 2.2
    assert uniform.computing == [0.5, 2.1]
    assert uniform.exchange == 0.1  # of 0.1, 1.9 and 0
    assert uniform.waiting == [1.7, 0.1]


def test_report() -> None:
    assert list(report(RESULT)) == [
        "small, batch 100: ms an iteration, medians of 1 turns",
        "           rank      samples  predicted       seen",
        "  UNIFORM  0 (a)          50      500.0      500.0",
        "           1 (b)          50     2000.0     2100.0",
        # 2 / 1.25 - 1; 2.1 / 1.3 - 1
        "           imbalance predicted 60.0%, seen 61.5%; exchange 100.0; whole iteration 2200.0",
        "  STATIC   0 (a)          80     1000.0      800.0",
        "           1 (b)          20     1000.0     1000.0",
        "           imbalance predicted 0.0%, seen 11.1%; exchange 100.0; whole iteration 1100.0",
        "  speed-up of STATIC over UNIFORM: 2.000",
        # 100 and 20 samples a second: 100 in 833.3 ms. 2.1 / 0.8333
        "  ideal at the speeds in training: 2.520 (2100.0 / 833.3); achieved / ideal 79.4%",
        "  ideal at the speeds by the profile: 2.000 (2000.0 / 1000.0); achieved / ideal 100.0%",
    ]


def test_outcomes_are_what_the_worker_writes() -> None:
    turn = {"seconds": 2.2, "computing": [0.5, 2.0], "exchange": [1.7, 0.1]}
    written = {side: {"shares": [3, 1], "turns": [turn]} for side in ("UNIFORM", "STATIC")}
    expected = Outcome((3, 1), (Turn(2.2, (0.5, 2.0), (1.7, 0.1)),))
    assert outcomes(written) == {"UNIFORM": expected, "STATIC": expected}


def test_rows_are_of_an_iteration_and_of_an_epoch() -> None:
    first, *_ = time_rows("here", RESULT)
    assert dict(zip(TIMES, first, strict=True)) == {
        "place": "here", "net": "small", "batch": 100, "balance": "UNIFORM", "rank": 0, "name": "a", "samples": 50,
        "predicted": 0.5, "computing": 0.5, "communication": 1.7, "computing_of_an_epoch": 5.0,
        "communication_of_an_epoch": 17.0,
    }  # fmt: skip
    assert dict(zip(SPEEDUPS, speedup_row("here", RESULT), strict=True)) == {
        "place": "here", "ranks": 2, "net": "small", "parameters": 7, "batch": 100, "unbalanced": 22.0,
        "balanced": 11.0, "speedup": pytest.approx(2.0), "ideal_in_training": pytest.approx(2.52),
        "ideal_by_the_profile": pytest.approx(2.0), "achieved_of_ideal": pytest.approx(2 / 2.52),
        "achieved_of_ideal_by_the_profile": pytest.approx(1.0),
    }  # fmt: skip


def test_accuracy_is_the_mean_of_repetitions() -> None:
    curves = {
        "STATIC": [[(0, 0.0, 0.1), (8, 2.0, 0.9), (16, 4.0, 0.7)], [(0, 0.0, 0.1), (8, 3.0, 0.5), (16, 6.0, 0.5)]]
    }
    (row,) = accuracy_rows("here", "small", 10, 80, curves)
    assert dict(zip(ACCURACIES, row, strict=True)) == {
        "place": "here", "net": "small", "batch": 10, "balance": "STATIC", "epochs": 2.0, "repetitions": 2,
        "maximum": pytest.approx(0.7), "maximum_deviation": pytest.approx(0.2 * 2**0.5), "last": pytest.approx(0.6),
        "last_deviation": pytest.approx(0.1 * 2**0.5), "seconds": pytest.approx(5.0),
    }  # fmt: skip
    assert list(curve_rows("here", "small", 10, 80, curves))[-1] == (
        "here", "small", 10, "STATIC", 1, 2.0, 6.0, 0.5,
    )  # fmt: skip


def test_unlike_shares() -> None:
    assert unlike_shares(2, 2) == [1.0, 0.25]  # no rank can use more than a core
    # Together 0.8 of a core: 1 + 0.95 + 0.9 + 0.25 + 0.2375 = 3.3375.
    assert unlike_shares(5, 1) == pytest.approx(
        [each / 3.3375 * 0.8 for each in (1, 0.95, 0.9, 0.25, 0.2375)], abs=1e-4
    )
    assert sum(unlike_shares(16, 2)) == pytest.approx(1.6, abs=1e-3)


@pytest.mark.parametrize(
    ("name", "numbers"), [slow("resnet20", 271_117), slow("staticlb_cifar10", 176_034), ("staticlb_mnist", 21_840)]
)
def test_solvers(name: str, numbers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The nets of prototxt/, all of their layers, on images of the right shape."""
    monkeypatch.setattr(nets, "IMAGES", 4)
    path = write_solver(name, 4, nets.make_images(NETS[name].shape, tmp_path), tmp_path)
    source = read_plan(path, ["parallel_param { balance: STATIC }"])
    assert parameters(path) == numbers
    assert build_graph_of(source.train).edges[0].shape == (4, *map(int, NETS[name].shape.split("x")))
    assert source.engine == pb.SolverParameter.CHANNELS_LAST
    assert not source.parallel_param.sync_batch_norm
    assert source.parallel_param.balance_param.profile == str(tmp_path / f"{name}.json")


def test_quick_is_small_and_keeps_what_was_asked_for() -> None:
    arguments = parse(bench, "--quick", "--nets", "resnet110", "--replicas", "4,16")
    bench.made_quick(arguments)
    assert (arguments.nets, arguments.replicas, arguments.repetitions) == (["resnet110"], [4], 1)
    arguments = parse(bench, "--quick", "--replicas", "16")
    bench.made_quick(arguments)
    assert arguments.replicas == [5]
    arguments = parse(bench, "--quick")
    bench.made_quick(arguments)
    assert arguments.nets == ["staticlb_mnist", "resnet20"]


@pytest.mark.parametrize(
    ("words", "iterations"),
    [((), 30 * 4000 // 128), (("--epochs", "300"), 300 * 4000 // 128), (("--quick", "--epochs", "2"), 2 * 4000 // 128)],
)
def test_epochs_of_the_net_for_cifar_10(words: tuple[str, ...], iterations: int) -> None:
    """30 in the full run, for which the paper has 300."""
    assert bench.iterations_to_learn("staticlb_cifar10", 4000, 128, parse(bench, *words)) == iterations


def test_the_largest_batch_is_profiled() -> None:
    assert nets.sorted_batches([64, 256, 64, 128]) == [256, 128, 64]


@pytest.mark.slow
def test_a_job_and_what_it_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two ranks that are threads train the small net of Table 1, and learn by it."""
    monkeypatch.setattr(nets, "FEW_IMAGES", 16)
    monkeypatch.setattr(ranks, "WARM_UP", 1)
    monkeypatch.setattr(ranks, "FEWEST", 1)
    monkeypatch.setattr(ranks, "ROUGH", SurveyLimits(precision=10.0, run=0.001, repeats=2, seconds=0.01))

    def job(module: str, work: Any) -> Any:
        does = ranks.work if module == "balance.ranks" else curve.work
        return run_ranks(2, partial(does, work), timeout=300)[0]

    arguments = parse(
        bench, "--quick", "--batches", "8,6", "--output", str(tmp_path), "--seconds", "0.001", "--rounds", "1"
    )
    arguments.repetitions = 1
    place = Place("two", "two threads", ["1", "0.25"], job)
    tables = Tables(tmp_path)
    results = bench.measure("staticlb_mnist", place, arguments, tmp_path, tables)
    assert [result.batch for result in results] == [6, 8]
    assert [sum(result.sides["UNIFORM"].shares) for result in results] == [6, 8]

    monkeypatch.setattr(bench, "images_to_learn", lambda *_: (tmp_path / "digits", 32, 8))
    words = ["--shape", "1x28x28", "--train", "32", "--test", "8"]
    call(ROOT / "scripts" / "make_synthetic.py", str(tmp_path / "digits"), *words)
    monkeypatch.setattr(bench, "SMALL_BATCH", 8)
    bench.learn("staticlb_mnist", place, arguments, tmp_path, tables)

    told = capsys.readouterr().out
    assert "staticlb_mnist, batch 6: ms an iteration" in told
    assert told.count("accuracy at most") == 3
    rows = {path.stem: list(csv.DictReader(path.read_text().splitlines())) for path in tmp_path.glob("*.csv")}
    assert {name: len(each) for name, each in rows.items() if name != "speeds"} == {
        "times": 8, "speedups": 2, "accuracy": 3, "accuracy_by_time": 33,
    }  # fmt: skip
    # Samples weigh alike by default, so shares do not change what is learnt; unweighted they do.
    last = {row["balance"]: float(row["last"]) for row in rows["accuracy"]}
    assert last["UNIFORM"] == last["STATIC"]
    assert {path.name for path in tmp_path.glob("*.png")} == {
        f"two_staticlb_mnist_{what}.png" for what in ("speeds", "times", "accuracy")
    }
    figures.draw_epochs(tmp_path / "epochs.png", "all", results)
    assert (tmp_path / "epochs.png").stat().st_size > 1000
