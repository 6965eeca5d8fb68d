"""Figures of a run: what they show, by the data of their lines and bars."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bpt.base.errors import UserError, WriteError
from bpt.train.outer.report import RunRecord, check_matplotlib, compare, draw, draw_lines
from bpt.train.outer.report import run_comparison as comparison
from bpt.train.outer.report.figures import (
    draw_balance,
    draw_bytes,
    draw_nodes,
    draw_scores,
    draw_times_to,
    draw_updates,
)
from bpt.train.outer.report.style import NEVER, bars, grouped_bars, new_figure, save
from tests.support.figures import bars_of
from tests.train.outer.report.runs import KIB, scored, small_run, update

PNG = b"\x89PNG\r\n\x1a\n"
MIB = 2**20


def lines_of(axes: Axes) -> dict[str, list[list[float]]]:
    """Label → x and y."""
    return {str(line.get_label()): np.array(line.get_data()).tolist() for line in axes.get_lines()}


def axes_of(figure: Figure | None) -> list[Axes]:
    assert figure is not None
    return figure.axes


def test_figure_files(tmp_path: Path) -> None:
    names = ["accuracy", "execution_time", "time_to_accuracy", "bytes_moved", "balance_index", "updates"]
    paths = draw(small_run(r"no $\formula$"), tmp_path / "new")
    assert paths == [tmp_path / "new" / f"{name}.png" for name in names]
    assert all(path.read_bytes().startswith(PNG) for path in paths)
    assert draw(RunRecord(), tmp_path / "none") == []


def test_scores() -> None:
    """Of the first test net."""
    accuracy, auc = axes_of(draw_scores("", {"": [small_run()]}))
    assert list(lines_of(accuracy).values()) == [[[1.0, 2.0, 3.0], [0.5, 0.875, 0.8125]]]
    assert list(lines_of(auc).values()) == [[[1.0, 2.0, 3.0], [0.75, 0.9375, 0.96875]]]
    assert [axes.get_ylabel() for axes in (accuracy, auc)] == ["test accuracy", "AUC"]
    assert accuracy.get_xlabel() == "epoch"


def test_without_auc_one_panel() -> None:
    record = RunRecord(tests=[scored(1.0, 1.0, 0.5), scored(2.0, 2.0, math.nan), scored(3.0, 3.0, 0.75)])
    (axes,) = axes_of(draw_scores("", {"": [record]}))
    assert list(lines_of(axes).values()) == [[[1.0, 3.0], [0.5, 0.75]]]
    assert draw_scores("", {"": [RunRecord(tests=[scored(1.0, 1.0, math.nan)])]}) is None


def test_times_to() -> None:
    """The best is 0.875: five levels up to 0.85, all of them reached by the test at 8.5 s."""
    (axes,) = axes_of(draw_times_to("", {"": [small_run()]}))
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["0.65", "0.7", "0.75", "0.8", "0.85"]
    assert [patch.get_height() for patch in bars_of(axes)] == [8.5] * 5
    (axes,) = axes_of(draw_times_to("", {"": [small_run()]}, levels=(0.3, 0.6)))
    assert [patch.get_height() for patch in bars_of(axes)] == [4.5, 8.5]
    assert [text.get_text() for text in axes.texts] == ["4.5", "8.5"]
    assert draw_times_to("", {"": [RunRecord()]}) is None


def test_nodes() -> None:
    (axes,) = axes_of(draw_nodes(small_run()))
    bars = [(bar.get_x(), bar.get_width(), round(bar.get_y() + bar.get_height() / 2)) for bar in bars_of(axes)]
    expected = [(0, 8, 0), (0, 11, 1), (8, 0.6, 0), (11, 0.6, 1), (8.6, 3.25, 0), (11.6, 0, 1)]
    assert np.array(bars) == pytest.approx(np.array(expected))
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["0 (host0)", "1 (host1)"]
    assert lines_of(axes)["execution time"][0] == [12.0, 12.0]


def test_of_many_nodes_areas() -> None:
    record = small_run()
    record.nodes[:] = [type(row)(**{**vars(row), "worker": w}) for w in range(50) for row in record.nodes[:1]]
    (axes,) = axes_of(draw_nodes(record))
    assert not axes.patches
    assert [str(area.get_label()) for area in axes.collections] == [
        "computing", "waiting for the server", "idle at the end",
    ]  # fmt: skip
    last = np.array(axes.collections[-1].get_paths()[0].vertices)
    assert (last[:, 1].min(), last[:, 1].max()) == pytest.approx((8.6, 11.85))


def test_bytes_against_eq_11() -> None:
    (axes,) = axes_of(draw_bytes(small_run()))
    seconds = [0.0, 2.0, 4.25, 5.5, 8.5, 8.75, 12.0]
    moved = [2 * KIB * count / MIB for count in range(7)]
    assert list(lines_of(axes).values()) == [[seconds, moved], [seconds, moved]]
    assert list(lines_of(axes)) == [r"Eq. 11: $2 c_w$ a submission", "counted"]


def test_bytes_counted_by_the_nodes_only() -> None:
    record = small_run()
    record.updates[:] = [type(row)(**{**vars(row), "moved": 0}) for row in record.updates]
    (axes,) = axes_of(draw_bytes(record))
    assert lines_of(axes)["counted"] == [[12.0], [12 * KIB / MIB]]
    record.weights = 0
    assert draw_bytes(record) is None


def test_balance() -> None:
    (axes,) = axes_of(draw_balance(small_run()))
    lines = lines_of(axes)
    assert lines["of one iteration"] == [[1.0, 2.0, 3.0], [0.75, 0.875, 1.0]]
    assert lines["of the run: 0.864"][1] == pytest.approx([19 / 22] * 2)
    low, high = axes.get_ylim()
    assert (low, high) == pytest.approx((0.7, 1.02))


def test_updates() -> None:
    staleness, factor = axes_of(draw_updates(small_run()))
    assert lines_of(staleness) == {"worker 0": [[1, 3, 5], [0, 1, 1]], "worker 1": [[2, 4, 6], [1, 1, 1]]}
    assert lines_of(factor) == {"worker 0": [[1, 3, 5], [0.25, 0.5, 0.5]], "worker 1": [[2, 4, 6], [0.75, 0.5, 0.5]]}


def test_updates_without_factors() -> None:
    record = small_run()
    record.updates[:] = [type(row)(**{**vars(row), "factor": math.nan}) for row in record.updates]
    assert len(axes_of(draw_updates(record))) == 1


def test_of_many_updates_the_range() -> None:
    """2000 updates in 100 bins of 20 versions: their factors are 0 to 19, and with each bin 100 more."""
    record = RunRecord(updates=[
        update(v + 1, v / 10, v % 3, v, v // 3 + 1, 0.1, factor=v % 20 + v // 20 * 100) for v in range(2000)
    ])  # fmt: skip
    _, factor = axes_of(draw_updates(record))
    middle, height = lines_of(factor)["median"]
    assert middle == pytest.approx([11 + 20 * group for group in range(100)])
    assert height == pytest.approx([9.5 + 100 * group for group in range(100)])


def test_what_cannot_be_written(tmp_path: Path) -> None:
    figure = draw_nodes(small_run())
    assert figure is not None
    with pytest.raises(WriteError, match="there is no folder"):
        save(figure, tmp_path / "none" / "a.png")
    (tmp_path / "file").write_text("")
    with pytest.raises(WriteError, match="file: could not be written"):
        draw(small_run(), tmp_path / "file")


def test_figures_without_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_matplotlib()
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UserError, match=r"pip install 'bpt\[plot\]'"):
        check_matplotlib()
    with pytest.raises(UserError, match=r"pip install 'bpt\[plot\]'"):
        draw(small_run(), tmp_path / "folder")
    assert not (tmp_path / "folder").exists()


def test_comparison_files(tmp_path: Path) -> None:
    faster = replace(small_run(), seconds=9.0)
    paths = compare({"SGWU + UDPA": [small_run(), small_run()], "AGWU + IDPA": faster}, tmp_path / "new", "two ways")
    names = ["execution_time", "waiting", "balance_index", "bytes_moved", "accuracy", "time_to_accuracy"]
    assert paths == [tmp_path / "new" / f"{name}.png" for name in names]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)


def test_without_tests_no_scores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "save", lambda figure, path: path)
    untested = replace(small_run(), tests=[])
    assert len(compare({"a": untested, "b": small_run()}, tmp_path)) == 6
    assert len(compare({"a": untested}, tmp_path)) == 4


def test_what_is_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Execution times of 12 and 9 s; 1.2 s waited in 24 and in 18 s; the rest alike."""
    drawn: dict[str, Figure] = {}
    monkeypatch.setattr(comparison, "save", lambda figure, path: drawn.setdefault(path.stem, figure) and path)
    compare({"slow": small_run(), "fast": replace(small_run(), seconds=9.0)}, tmp_path)
    heights = {name: [bar.get_height() for bar in bars_of(figure.axes[0])] for name, figure in drawn.items()}
    assert heights["execution_time"] == [12, 9]
    assert heights["waiting"] == pytest.approx([5, 100 * 1.2 / 18])
    assert heights["balance_index"] == pytest.approx([19 / 22] * 2)
    assert heights["bytes_moved"] == pytest.approx([12 / 1024] * 2)
    assert [tick.get_text() for tick in drawn["waiting"].axes[0].get_xticklabels()] == ["slow", "fast"]
    assert drawn["waiting"].axes[0].get_ylabel() == "waiting for the server (% of the run)"


def test_repeats_are_means_with_whiskers() -> None:
    _, (axes,) = new_figure()
    bars(axes, {"one": [4.0], "three": [1.0, 2.0, 6.0]})
    assert [bar.get_height() for bar in bars_of(axes)] == [4.0, 3.0]
    whisker: Any
    (whisker,) = axes.collections
    assert np.array(whisker.get_segments()).tolist() == [[[1.0, 1.0], [1.0, 6.0]]]
    assert [text.get_text() for text in axes.texts] == ["4", "3"]


def test_a_group_that_was_not_reached() -> None:
    """Of the second way one run never came to the first group, so there is no mean."""
    _, (axes,) = new_figure()
    grouped_bars(axes, ["0.8", "0.9"], {"one": [[2.0], [5.0]], "two": [[3.0, None], [1.0, 2.0]]})
    assert [text.get_text() for text in axes.texts] == ["2", "5", NEVER, "1.5"]
    assert [bar.get_height() for bar in bars_of(axes)] == [2.0, 5.0, 0.0, 1.5]
    assert [bar.get_x() + bar.get_width() / 2 for bar in bars_of(axes)] == pytest.approx([-0.2, 0.8, 0.2, 1.2])
    assert axes.get_legend_handles_labels()[1] == ["one", "two"]


def test_mean_curve_between_the_tests_of_each_run() -> None:
    """At epochs 1 and 2 of the first; the second has 0.3 and 0.5 there, on its line from 0.1 at 0 to 0.7 at 3."""
    first = RunRecord(tests=[scored(1.0, epoch, value) for epoch, value in ((0.0, 0.0), (1.0, 0.5), (2.0, 0.7))])
    second = RunRecord(tests=[scored(1.0, epoch, value) for epoch, value in ((0.5, 0.2), (3.0, 0.7))])
    figure = draw_scores("", {"way": [first, second]})
    assert figure is not None
    (curve,) = figure.axes[0].get_lines()
    assert np.array(curve.get_data()) == pytest.approx(np.array([[1.0, 2.0], [0.4, 0.6]]))


def test_levels_that_some_way_always_reaches() -> None:
    """One run of the first way reached 0.95, but both only 0.6; the second way reached 0.7."""
    best = {"one": (0.95, 0.6), "two": (0.7,)}
    runs = {name: [RunRecord(tests=[scored(1.0, 1.0, each)]) for each in values] for name, values in best.items()}
    figure = draw_times_to("", runs)
    assert figure is not None
    levels = [tick.get_text() for tick in figure.axes[0].get_xticklabels()]
    assert levels == ["0.4", "0.5", "0.6", "0.65", "0.7"]


def test_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    points = {"AGWU + IDPA": [(5.0, 100.0), (10.0, 51.0)], "SGWU + UDPA": [(5.0, 150.0), (10.0, 90.0)]}
    path = draw_lines(tmp_path / "nodes.png", "600,000 samples", "computing nodes", "execution time (s)", points)
    assert path.read_bytes().startswith(b"\x89PNG")
    drawn: list[Figure] = []
    monkeypatch.setattr(comparison, "save", lambda figure, path: drawn.append(figure))
    draw_lines(path, "", "x", "y", points)
    lines = {line.get_label(): np.array(line.get_data()).T.tolist() for line in drawn[0].axes[0].get_lines()}
    assert lines == {name: [list(point) for point in each] for name, each in points.items()}
    assert drawn[0].axes[0].get_ylim()[0] == 0


def test_comparison_without_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UserError, match=r"pip install 'bpt\[plot\]'"):
        compare({"a": small_run()}, tmp_path / "folder")
    with pytest.raises(UserError, match=r"pip install 'bpt\[plot\]'"):
        draw_lines(tmp_path / "a.png", "", "", "", {})
    assert list(tmp_path.iterdir()) == []
