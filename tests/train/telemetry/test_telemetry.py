"""The metrics of whole runs on ranks that are threads: which records there are, and what is in them."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from bpt.cli.main import main
from bpt.config.plan.resolve import read_plan
from bpt.nn.net_graph import build_graph_of
from bpt.perf.forecast.drift import Drift, PlanAssumptions
from bpt.perf.forecast.net_costs import costs_for
from bpt.system.comm.base import Communicator
from bpt.train.solver.solver import Solver
from bpt.train.telemetry.live_view import view
from bpt.train.telemetry.metrics_file import MetricsFile
from bpt.train.telemetry.telemetry import Telemetry
from tests.support.doubles.thread_ranks import run_ranks
from tests.support.small_forecasts import nodes

pytestmark = pytest.mark.usefixtures("folder")


def records(path: str = "run.jsonl") -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


@pytest.mark.parametrize("ranks", [1, 2])
def test_what_a_run_leaves(ranks: int, caplog: pytest.LogCaptureFixture) -> None:
    plan = read_plan("solver.prototxt")
    logging.getLogger("bpt").propagate = True

    def run(comm: Communicator) -> None:
        basis = PlanAssumptions(plan, costs_for(plan, build_graph_of(plan.train)), nodes(4, 4))
        drift = Drift(basis) if comm.size > 1 and comm.rank == 0 else None
        with (
            Telemetry(plan, [MetricsFile("run.jsonl")], drift) as telemetry,
            Solver(plan, world=comm, listeners=[telemetry]) as solver,
        ):
            solver.solve()

    with caplog.at_level(logging.INFO, "bpt"):
        run_ranks(ranks, run)
    found = records()
    assert [each["kind"] for each in found] == ["start", "train", "snapshot", "test", "end"]
    start, train, saved, test, _ = found
    assert (start["net"], start["ranks"], start["max_iter"]) == ("one", ranks, 4)
    assert (train["iteration"], train["lr"], len(train["ranks"])) == (2, 0.5, ranks)
    assert train["loss"] == train["outputs"]["loss"] == 0.5 * 0.25**2
    assert train["samples_a_second"] == pytest.approx(4 / train["seconds_an_iteration"])
    assert all(rank["computing"] > 0 and rank["memory"] > 0 for rank in train["ranks"])
    assert (saved["iteration"], saved["path"]) == (4, "one_iter_4.solverstate")
    assert test["outputs"]["loss"] == 0.5 * 0.0625**2
    told = [record.getMessage() for record in caplog.records if "Slowest of" in record.getMessage()]
    assert len(told) == (ranks if ranks > 1 else 0)  # on each rank; all but the first are silent
    shown = "\n".join(view(found))
    assert "one · solver.prototxt" in shown
    assert "4 of 4" in shown
    assert ("exchange" in shown) == ("predicted" in shown) == (ranks > 1)
    if ranks > 1:  # 2 of 4 samples at 4 a second
        predicted = [rank["predicted"]["computing"] for rank in train["ranks"]]
        assert predicted == pytest.approx([0.5, 0.5])


def test_a_run_that_goes_on_goes_on_with_its_file_and_a_new_one_begins_anew(folder: Path) -> None:
    train = ["train", "--solver", "solver.prototxt", "--metrics", "run.jsonl"]
    assert main(train) == main(train) == 0
    assert [each["kind"] for each in records()].count("start") == 1
    assert main([*train, "--set", "max_iter: 8", "--snapshot", "auto"]) == 0
    assert [each["iteration"] for each in records() if each["kind"] == "start"] == [0, 4]


def test_mistakes_are_told(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    (folder / "odd.jsonl").write_text("{}\n")
    for words, told in (
        (["train", "--solver", "solver.prototxt", "--metrics", "run.csv"], "must end in .jsonl"),
        (["train", "--solver", "solver.prototxt", "--metrics", "no/run.jsonl"], "no"),
        (["watch", "--metrics", "none.jsonl"], "none.jsonl: No such file"),
        (["watch", "--metrics", "odd.jsonl"], "line 1 is no record of metrics"),
    ):
        assert main(words) == 2
        assert told in capsys.readouterr().err


def test_tensorboard_reads_what_is_written() -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    assert main(["train", "--solver", "solver.prototxt", "--tensorboard", "board"]) == 0
    events = accumulator.EventAccumulator("board").Reload()
    assert [(each.step, each.value) for each in events.Scalars("train/smoothed loss")] == [(2, 0.5 * 0.25**2)]
    assert [each.step for each in events.Scalars("test 0/loss")] == [4]
