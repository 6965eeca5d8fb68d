"""Compared runs: their numbers by hand from made-up metrics, the table, the figure's labels, and what is refused."""

from __future__ import annotations

import csv
import itertools
import json
import math
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from bpt.apps.compare.comparison_figure import spread
from bpt.apps.compare.comparison_table import markdown, same_score, write_csv_text
from bpt.apps.compare.strategy_comparison import StrategyComparison, launcher_of
from bpt.apps.compare.trial_checks import check_mpirun
from bpt.apps.compare.trial_result import TrialResult, read_metrics, read_reports
from bpt.apps.compare.trials import STRATEGIES, trials_of
from bpt.base.errors import FileError, UsageError, UserError
from bpt.perf.simulate.simulation import strategies_of
from bpt.train.outer.report import record
from bpt.train.outer.report.record import NodeRow, RunRecord
from bpt.train.outer.report.tables import write_csv

DATA, CGDP = STRATEGIES["DATA"], STRATEGIES["CGDP"]


def load(exchange: float) -> dict[str, float]:
    return {"exchange": exchange, "pipeline": 0.0, "layers": 0.0}


def written(path: Path, *lines: dict[str, object]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def run_lines() -> list[dict[str, object]]:
    def test(time: float, iteration: int, accuracy: float) -> dict[str, object]:
        return {"kind": "test", "time": time, "iteration": iteration, "net": 0, "loss": 1.0,
                "outputs": {"accuracy": accuracy, "loss": 1.0}}  # fmt: skip

    def train(iteration: int, seconds: float, *exchange: float) -> dict[str, object]:
        return {"kind": "train", "time": 0.0, "iteration": iteration, "seconds_an_iteration": seconds,
                "ranks": [load(each) for each in exchange]}  # fmt: skip

    return [
        {"kind": "start", "time": 100.0, "iteration": 0},
        test(101.0, 0, 0.1),
        train(10, 0.2, 0.1, 0.0),
        test(104.0, 10, 0.9),
        train(40, 0.4, 0.3, 0.1),
        test(116.0, 40, 0.8),
        {"kind": "end", "time": 117.0},
    ]


def test_numbers_of_a_synchronous_run(tmp_path: Path) -> None:
    found = read_metrics(written(tmp_path / "m.jsonl", *run_lines()), DATA, 2)
    assert (found.measure, found.is_loss) == ("accuracy", False)
    assert found.scores == ((1.0, 0.1), (4.0, 0.9), (16.0, 0.8))
    assert (found.final, found.best, found.seconds) == (0.8, 0.9, 17.0)
    assert found.seconds_an_iteration == pytest.approx((10 * 0.2 + 30 * 0.4) / 40)
    assert found.waiting == pytest.approx((10 * 0.05 + 30 * 0.2) / (10 * 0.2 + 30 * 0.4))
    assert math.isnan(found.bytes_sent)


def test_one_process_neither_waits_nor_sends(tmp_path: Path) -> None:
    found = read_metrics(written(tmp_path / "m.jsonl", *run_lines()), DATA, 1)
    assert (found.waiting, found.bytes_sent) == (0.0, 0.0)


def test_numbers_of_asynchronous_workers(tmp_path: Path) -> None:
    nodes = [NodeRow(place, "a", 8, 2.0, 3.0, waited, 0.0, 4, sent, 0) for place, waited, sent in
             ((0, 1.0, 4000), (1, 3.0, 8000))]  # fmt: skip
    tests = [
        record.TestRow(2.0, 5, 1.0, 3, 0, 0.7, 0.5, math.nan),
        record.TestRow(5.0, 20, 2.0, 9, 0, 0.3, 0.75, math.nan),
    ]
    write_csv(RunRecord(seconds=8.0, nodes=nodes, tests=tests), tmp_path)
    found = read_reports(tmp_path, STRATEGIES["AGWU+IDPA"], 3)
    assert found.scores == ((2.0, 0.5), (5.0, 0.75))
    assert (found.seconds, found.seconds_an_iteration) == (8.0, 8.0 / 20)
    assert found.waiting == pytest.approx((1.0 + 3.0) / (2 * 8.0))
    assert found.bytes_sent == (4000 + 8000) / 2 / 20


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (['{"kind": "train"}'], "line 1 is no record of metrics"),
        (['{"kind": "start", "time": 1.0, "iteration": 0}', '{"kind": "train", "time": 2.0'], "line 2 is no record"),
        (['{"kind": "start", "time": 1.0, "iteration": 0}', '{"kind": "train", "time": 2.0}'], "line 2 is no record"),
        ([], "has no records"),
    ],
)
def test_damaged_metrics(lines: list[str], words: str, tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text("".join(f"{line}\n" for line in lines))
    with pytest.raises(FileError, match=words):
        read_metrics(path, DATA, 1)


def test_a_record_that_is_not_written_whole_is_left_out(tmp_path: Path) -> None:
    path = written(tmp_path / "m.jsonl", *run_lines())
    with path.open("a") as file:
        file.write('{"kind": "tr')
    assert read_metrics(path, DATA, 2).seconds == 17.0


RESULTS = (
    TrialResult(DATA, 2, "accuracy", ((1.0, 0.5), (2.0, 0.8), (3.0, 0.9)), 0.25, 0.4, math.nan, 3.5),
    TrialResult(CGDP, 2, "accuracy", ((1.0, 0.7), (4.0, 0.8), (5.0, 0.75)), 0.5, 0.1, 2048.0, 5.5),
    TrialResult(STRATEGIES["RING"], 2, failure="no such file"),
)


def test_the_time_to_the_same_score_is_that_of_the_worst_run() -> None:
    assert same_score(RESULTS) == 0.8
    assert [each.seconds_until(0.8) for each in RESULTS[:2]] == [2.0, 4.0]
    losses = [TrialResult(DATA, 1, "loss", ((1.0, 0.5), (2.0, 0.2))), TrialResult(CGDP, 1, "loss", ((1.5, 0.4),))]
    assert same_score(losses) == 0.4
    assert [each.seconds_until(0.4) for each in losses] == [2.0, 1.5]


def test_tables() -> None:
    rows = list(csv.DictReader(write_csv_text(RESULTS).splitlines()))
    assert [row["seconds_to_same"] for row in rows] == ["2.0", "4.0", ""]
    assert [row["bytes_sent_an_iteration"] for row in rows] == ["", "2048.0", ""]
    assert rows[2]["failure"] == "no such file"
    lines = markdown(RESULTS).splitlines()
    assert "final accuracy" in lines[0] and "s to accuracy 0.8" in lines[0]
    assert lines[2] == "| DATA | synchronous data parallelism | 2 | 0.9000 | 0.9000 | 2.00 | 250.00 | 40% |  | 3.50 |"
    assert lines[3].endswith("| 0.7500 | 0.8000 | 4.00 | 500.00 | 10% | 2 | 5.50 |")
    assert lines[-1] == "RING failed: no such file"
    assert len({line.count("|") for line in lines[:5]}) == 1


@pytest.mark.parametrize(
    ("name", "line", "is_remarked"),
    [("CGDP", "Chunks: searching, 2 iterations each; 3 layers have weights", True),
     ("CGDP", "Chunks: 1x2 1x1, as kept in choice.json; delete it to search anew", False),
     ("AGWU+UDPA", "done", False)],
)  # fmt: skip
def test_every_run_writes_metrics_and_a_search_is_remarked(
    name: str, line: str, is_remarked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(command: Sequence[str], log: int) -> int:
        os.write(log, f"{line}\n".encode())
        metrics = next(Path(word.removeprefix("--metrics=")) for word in command if word.startswith("--metrics="))
        written(metrics, *run_lines())
        write_csv(RunRecord(seconds=8.0), metrics.parent / "run_run")
        return 0

    monkeypatch.setattr("bpt.apps.compare.strategy_comparison._wait", train)
    solver = tmp_path / "solver.prototxt"
    solver.write_text('net: "net.prototxt" base_lr: 0.1 lr_policy: "fixed" max_iter: 1\n')
    output = tmp_path / "out"
    assert StrategyComparison(str(solver), (), [STRATEGIES[name]], 1, (), output).run() == 0
    assert (output / name / "metrics.jsonl").exists()
    assert ("cgdp_param { chunk_size }" in (output / "comparison.md").read_text()) == is_remarked


def comparison(
    folder: Path, text: str, *names: str, ranks: int = 3, launcher: Sequence[str] = ()
) -> StrategyComparison:
    solver = folder / "solver.prototxt"
    solver.write_text(f'net: "net.prototxt" base_lr: 0.1 lr_policy: "fixed" max_iter: 1\n{text}\n')
    return StrategyComparison(str(solver), (), [STRATEGIES[name] for name in names], ranks, launcher, folder / "out")


def test_all_trials_are_checked_before_the_first_run(tmp_path: Path) -> None:
    text = "average_param { }\nparallel_param { batch_scope: GLOBAL }"
    with pytest.raises(UserError) as error:
        comparison(tmp_path, text, "DATA", "AGWU+IDPA", "SGWU+UDPA", "AGWU+UDPA").run()
    first, second = str(error.value).splitlines()
    assert "solver.prototxt:2:1: average_param" in first and first.endswith("(AGWU+IDPA, AGWU+UDPA)")
    assert "exchange: SGWU" in second and second.endswith("(SGWU+UDPA)")
    assert not (tmp_path / "out").exists()


def test_the_best_snapshot_is_left_out_with_a_notice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = []

    def train(command: Sequence[str], log: int) -> int:
        seen.append(command)
        return 1

    monkeypatch.setattr("bpt.apps.compare.strategy_comparison._wait", train)
    text = 'snapshot_best: "accuracy" test_interval: 1 test_iter: 1'
    assert comparison(tmp_path, text, "DATA", "AGWU+IDPA").run() == 1
    assert all('--set=snapshot_best: ""' in command for command in seen) and len(seen) == 2
    assert "snapshot_best has no effect" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("printed", "flag"),
    [("mpirun has detected an attempt to run as root: --allow-run-as-root", "--allow-run-as-root"),
     ("There are not enough slots available in the system", "--oversubscribe")],
)  # fmt: skip
def test_a_flag_that_mpirun_lacks_is_asked_for_before_the_first_run(printed: str, flag: str, tmp_path: Path) -> None:
    mpirun = tmp_path / "mpirun"
    mpirun.write_text(f"#!/bin/sh\necho '{printed}' >&2\nexit 1\n")
    mpirun.chmod(0o755)
    with pytest.raises(UserError, match=f"add --mpirun={flag}"):
        comparison(tmp_path, "", "DATA", launcher=[str(mpirun), "-n", "3"]).run()
    assert not (tmp_path / "out").exists()
    mpirun.write_text("#!/bin/sh\nexit 0\n")
    check_mpirun([str(mpirun), "-n", "3"])


def test_labels_do_not_overlap() -> None:
    moved = spread([0.9, 0.91, 0.0, 0.01, 0.5], gap=0.1)
    assert moved[1] > moved[0] > moved[4] > moved[3] > moved[2] >= 0
    ordered = sorted(moved)
    assert all(high - low >= 0.1 - 1e-9 for low, high in itertools.pairwise(ordered))
    assert spread([0.2, 0.8]) == [0.2, 0.8]


def test_strategies_of_the_outer_layer_are_named_as_in_the_simulator() -> None:
    outer = [name for name in STRATEGIES if "+" in name]
    assert [str(strategy) for strategy in strategies_of(",".join(outer))] == outer
    for strategy in strategies_of(",".join(outer)):
        settings = STRATEGIES[str(strategy)].settings
        assert settings == f"parallel_param {{ exchange: {strategy.exchange} balance: {strategy.balance} }}"


@pytest.mark.parametrize(
    ("strategies", "own", "message"),
    [
        ("", [], "needs --strategies or --try"),
        ("DATA,CGPD", [], 'unknown strategy "CGPD"; did you mean "CGDP"?'),
        ("DATA,DATA", [], '"DATA" occurs more than once'),
        ("DATA", ["DATA=base_lr: 1"], '"DATA" occurs more than once'),
        ("", ["base_lr: 1"], "--try takes NAME=TEXT"),
        ("", ["../up=base_lr: 1"], "--try takes NAME=TEXT"),
    ],
)
def test_wrong_trials(strategies: str, own: list[str], message: str) -> None:
    with pytest.raises(UsageError) as error:
        trials_of(strategies, own)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("ranks", "mpirun", "launcher", "message"),
    [
        (2, ["--oversubscribe"], ["srun"], "either --launcher or --mpirun"),
        (1, [], ["srun"], "--launcher needs --ranks N"),
        (2, [], ["no-such-launcher"], "there is no command no-such-launcher"),
    ],
)
def test_wrong_launchers(ranks: int, mpirun: list[str], launcher: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        launcher_of(ranks, mpirun, launcher)


def test_a_launcher_of_the_users_own_is_in_the_place_of_mpirun() -> None:
    assert launcher_of(3, launcher=["env", "-n", "3"]) == ["env", "-n", "3"]
    assert launcher_of(1) == []
