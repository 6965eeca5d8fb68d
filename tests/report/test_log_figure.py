"""The curves of training runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from bpt.errors import UsageError, UserError
from bpt.report.log_figure import CHARTS, Curve, check_figure, draw, panels
from bpt.report.training_log import TrainingLog, parse_log

LINES = """\
I0101 00:00:00.000000 7 a] Solving Net
I0101 00:00:00.000000 7 a] Iteration 0 (0 iter/s, 1s/1 iters), loss = 2
I0101 00:00:00.000000 7 a] Iteration 0, lr = 0.1
I0101 00:00:04.000000 7 a] Iteration 10, Testing net (#0)
I0101 00:00:04.000000 7 a]     Test net output #0: accuracy = 0.75
I0101 00:00:04.000000 7 a]     Test net output #1: loss = 0.5 (* 1 = 0.5 loss)
I0101 00:00:04.000000 7 a] Iteration 10 (0 iter/s, 1s/1 iters), loss = 1
I0101 00:00:04.000000 7 a] Iteration 10, lr = 0.1
I0101 00:00:08.000000 7 a] Iteration 20, Testing net (#0)
I0101 00:00:08.000000 7 a]     Test net output #0: accuracy = 0.5
I0101 00:00:08.000000 7 a]     Test net output #1: loss = 0.25 (* 1 = 0.25 loss)
"""


@pytest.fixture
def log() -> TrainingLog:
    return parse_log(LINES.splitlines(), "run.log")


def test_the_panels_of_a_run(log: TrainingLog) -> None:
    loss, accuracy, rate = panels([log])
    assert loss.label == "loss"
    assert loss.curves == [
        (0, "training", Curve([0, 10], [2, 1])), (0, "test", Curve([10, 20], [0.5, 0.25], best=1)),
    ]  # fmt: skip
    assert accuracy == ("test accuracy", [(0, "accuracy", Curve([10, 20], [0.75, 0.5], best=0))])
    assert rate == ("learning rate", [(0, "learning rate", Curve([0, 10], [0.1, 0.1]))])


def test_against_seconds(log: TrainingLog) -> None:
    assert panels([log], seconds=True)[1].curves[0][2].x == [4, 8]


@pytest.mark.parametrize("chart", range(8))
def test_chart_types(chart: int, log: TrainingLog) -> None:
    found = [panel for panel in panels([log, log], chart=chart) if panel.curves]
    assert len(found) == 1
    assert found[0].label in CHARTS[chart].lower()
    assert [run for run, _, _ in found[0].curves] == [0, 1]


def test_what_was_done_anew_counts(log: TrainingLog) -> None:
    """The run goes on from a snapshot of iteration 5."""
    again = LINES.replace("Iteration 10", "Iteration 7").replace("loss = 1\n", "loss = 9\n").replace("Iteration 0", "x")
    both = parse_log([*LINES.splitlines(), *again.splitlines()])
    [(_, _, training), (_, _, test)] = panels([both])[0].curves
    assert (training.x, training.y) == ([0, 7], [2, 9])
    assert test.x == [7, 20]


@pytest.mark.parametrize("runs", [1, 2])
@pytest.mark.parametrize("name", ["a.png", "a.svg"])
def test_the_file(runs: int, name: str, log: TrainingLog, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert draw([log] * runs, str(tmp_path / name)) == tmp_path / name
    assert (tmp_path / name).stat().st_size > 1000


def test_nothing_to_show(log: TrainingLog, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    log.test.clear()
    with pytest.raises(UserError, match=r'the logs have nothing of the kind "Test accuracy vs\. Iters": run'):
        draw([log], str(tmp_path / "a.png"), chart=0)


def test_kinds_of_files() -> None:
    pytest.importorskip("matplotlib")
    check_figure("a.svg")
    with pytest.raises(UsageError, match=r"a\.pdf: figures are written"):
        check_figure("a.pdf")
