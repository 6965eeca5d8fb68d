from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from bpt.base.errors import UserError
from bpt.train.outer.report import RunRecord, compare, draw_lines
from bpt.train.outer.report import run_comparison as comparison
from bpt.train.outer.report.figures import draw_scores, draw_times_to
from bpt.train.outer.report.style import NEVER, bars, grouped_bars, new_figure
from tests.support.figures import bars_of
from tests.train.outer.report.runs import scored, small_run


def test_files(tmp_path: Path) -> None:
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


def test_without_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UserError, match=r"pip install 'bpt\[plot\]'"):
        compare({"a": small_run()}, tmp_path / "folder")
    with pytest.raises(UserError, match=r"pip install 'bpt\[plot\]'"):
        draw_lines(tmp_path / "a.png", "", "", "", {})
    assert list(tmp_path.iterdir()) == []
