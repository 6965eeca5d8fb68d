"""Figures of logs."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bpt.apps.plot import log_figure
from bpt.apps.plot.log_figure import CHARTS, Curve, check_figure, draw, panels, plot_logs
from bpt.apps.plot.training_log import TrainingLog, parse_log
from bpt.base.errors import UsageError, UserError
from tests.support.figures import texts
from tests.support.paths import GOLDEN

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
LOG = GOLDEN / "cli" / "train_from_weights.stderr.txt"


def test_logs_of_one_name_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        shutil.copy(LOG, tmp_path / folder / "train.log")
    plot_logs("a.svg", ["one/train.log", "./two/train.log"])
    assert {"one/train.log", "two/train.log"} <= set(texts(tmp_path / "a.svg"))
    plot_logs("a.svg", ["one/train.log"])
    assert "best 0.83 at 60" in texts(tmp_path / "a.svg")


def test_a_chart_type_that_is_none() -> None:
    with pytest.raises(UsageError, match=r"there is no chart type -1 \(0: Test accuracy vs\. Iters; 1: "):
        plot_logs("a.svg", [str(LOG)], chart=-1)
