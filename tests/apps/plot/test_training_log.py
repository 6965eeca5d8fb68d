"""Logs of training as rows, and their figures."""

from __future__ import annotations

import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bpt.apps.plot import log_figure
from bpt.apps.plot.log_figure import CHARTS, Curve, check_figure, draw, figure_of, panels, plot_logs
from bpt.apps.plot.training_log import TrainingLog, parse_log, read_log, table
from bpt.base.errors import FileError, UsageError, UserError
from tests.support.figures import texts
from tests.support.paths import GOLDEN

ROWS_LOG = """\
I1231 23:59:58.500000 7 solver.py:1] Solving Net
I1231 23:59:59.000000 7 solver.py:1] Iteration 0, Testing net (#0)
I1231 23:59:59.250000 7 solver.py:1]     Test net output #0: accuracy = 0.5
I1231 23:59:59.250000 7 solver.py:1]     Test net output #1: loss = 2 (* 1 = 2 loss)
I1231 23:59:59.500000 7 solver.py:1] Iteration 0, Testing net (#1)
I1231 23:59:59.500000 7 solver.py:1]     Test net output #0: accuracy = 0.25
I0101 00:00:01.000000 7 solver.py:1] Iteration 0 (1e-05 iter/s, 1s/1 iters), loss = 2.5
I0101 00:00:01.000000 7 solver.py:1]     Train net output #0: p = 1
I0101 00:00:01.000000 7 solver.py:1]     Train net output #1: p = 3
I0101 00:00:01.000000 7 solver.py:1] Iteration 0, lr = 1e-05
a line of somebody else
I0101 00:00:02.000000 7 solver.py:1] Iteration 5 (1 iter/s, 1s/1 iters), loss = nan
I0101 00:00:02.000000 7 solver.py:1]     Train net output #0: p = -inf
"""


def test_a_log_by_hand() -> None:
    log = parse_log(ROWS_LOG.splitlines(), "net.log")
    assert log.name == "net"
    [test] = log.test
    assert (test.iteration, test.seconds, test.rate) == (0, 0.75, 1e-5)
    assert test.values == {"accuracy": 0.5, "loss": 2.0, "#1:accuracy": 0.25}
    first, second = log.train
    assert (first.seconds, first.rate, first.values) == (2.5, 1e-5, {"p": 1.0, "p[1]": 3.0})  # over New Year's Eve
    assert (second.iteration, second.values) == (5, {"p": -math.inf})
    assert log.losses[0].values["loss"] == 2.5
    assert math.isnan(log.losses[1].values["loss"])
    assert math.isnan(log.losses[1].rate)  # not shown for iteration 5
    assert log.weighted == {"loss"}


def test_a_run_that_goes_on_in_the_same_log() -> None:
    """The iteration of the snapshot is there twice, after the tests of two nets."""
    again = ROWS_LOG.replace("p = 1", "p = 8").replace("loss = 2 (", "loss = 9 (")
    log = parse_log([*ROWS_LOG.splitlines()[:10], *again.splitlines()[:10]])
    assert [row.values for row in log.train] == [{"p": 1.0, "p[1]": 3.0}, {"p": 8.0, "p[1]": 3.0}]
    assert [row.values["loss"] for row in log.test] == [2.0, 9.0]
    assert all(row.values["#1:accuracy"] == 0.25 for row in log.test)


def test_a_cell_that_is_not_there_is_empty() -> None:
    assert table(parse_log(ROWS_LOG.splitlines()).train) == [
        ["NumIters", "Seconds", "LearningRate", "p", "p[1]"],
        ["0.0", "2.5", "1e-05", "1.0", "3.0"],
        ["5.0", "3.5", "1e-05", "-inf", ""],
    ]


@pytest.mark.parametrize(
    "name", ["train_random_init", "train_resume_snapshot", "train_sigint", "train_opts_h5_avgloss"]
)
def test_caffes_logs(name: str) -> None:
    """Each number that a line shows is in a row."""
    path = GOLDEN / "cli" / f"{name}.stderr.txt"
    log = read_log(str(path))
    for word, rows in (("Train", log.train), ("Test", log.test)):
        shown = [float(line.split(" = ")[1].split()[0]) for line in path.read_text().splitlines()
                 if f"{word} net output" in line]  # fmt: skip
        assert [value for row in rows for value in row.values.values()] == shown
    shown = [float(line.rsplit(" = ", 1)[1]) for line in path.read_text().splitlines() if ", loss = " in line]
    assert [row.values["loss"] for row in log.losses] == shown
    assert all(row.seconds >= 0 for row in (*log.train, *log.test))


def test_what_is_no_log(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xff\xfe nothing\n")
    with pytest.raises(FileError, match=r"a\.txt: is no log of training"):
        read_log(str(tmp_path / "a.txt"))
    with pytest.raises(FileError, match="no such file"):
        read_log(str(tmp_path / "b.txt"))


if TYPE_CHECKING:
    from matplotlib.figure import Figure


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


@pytest.mark.parametrize(("rate", "end"), [("0.1", [0, 10, 20]), ("0.05", [0, 10])])
def test_a_rate_that_stood_still_goes_on_to_the_last_loss(rate: str, end: list[int]) -> None:
    lines = f"Iteration 0, loss = 2\nIteration 0, lr = 0.1\nIteration 10, loss = 1\nIteration 10, lr = {rate}\n"
    loss, shown = (panel.curves[0][2] for panel in panels([parse_log((lines + "Iteration 20, loss = 1").split("\n"))]))
    assert (loss.x, shown.x) == ([0, 10, 20], end)
    assert shown.y[-1] == float(rate)


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


def test_sixteen_runs_differ_by_colour_or_marker(log: TrainingLog) -> None:
    pytest.importorskip("matplotlib")
    accuracy = figure_of([log] * 16).axes[1]
    curves = [line for line in accuracy.get_lines() if line.get_marker() != "*"]
    assert len(curves) == 16
    styles = {(line.get_color(), line.get_marker()) for line in curves}
    assert len(styles) == 16
    # The few points of these runs have a dot each, as those of the first runs of a colour always had.
    assert curves[0].get_marker() == "o"


def test_long_names_leave_the_panels_their_width(
    log: TrainingLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    figures: list[Figure] = []
    monkeypatch.setattr(log_figure, "save", lambda figure, path: figures.append(figure))
    names = ["x" * 200 + "1", "train_resume_snapshot.stderr", r"猫 $\nothing$"]  # no formula, no warning
    draw([replace(log, name=name) for name in names], str(tmp_path / "a.png"))
    [figure] = figures
    figure.draw_without_rendering()
    axes = figure.axes[0]
    assert axes.get_window_extent().width > 0.8 * figure.bbox.width
    legend = axes.get_legend()
    assert legend is not None
    assert legend.get_window_extent().x1 <= figure.bbox.width
    assert [text.get_text() for text in legend.get_texts()][:3] == ["…" + "x" * 54 + "1", *names[1:]]


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


pytest.importorskip("matplotlib")
FIGURE_LOG = GOLDEN / "cli" / "train_from_weights.stderr.txt"


def test_logs_of_one_name_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        shutil.copy(FIGURE_LOG, tmp_path / folder / "train.log")
    plot_logs("a.svg", ["one/train.log", "./two/train.log"])
    assert {"one/train.log", "two/train.log"} <= set(texts(tmp_path / "a.svg"))
    plot_logs("a.svg", ["one/train.log"])
    assert "best 0.83 at 60" in texts(tmp_path / "a.svg")


def test_a_chart_type_that_is_none() -> None:
    with pytest.raises(UsageError, match=r"there is no chart type -1 \(0: Test accuracy vs\. Iters; 1: "):
        plot_logs("a.svg", [str(FIGURE_LOG)], chart=-1)
