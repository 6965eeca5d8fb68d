"""The figure and the tables of fixed results are the committed ones; ``BPT_RENEW=1`` writes them anew."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bpt.apps.compare.comparison_figure import figure_of
from bpt.apps.compare.comparison_table import markdown, write_csv_text
from bpt.apps.compare.trial_result import TrialResult
from bpt.apps.compare.trials import STRATEGIES, TrainingTrial
from tests.support.golden_text import check_golden, rounded

COMPARISON = Path(__file__).parent / "golden_comparison.txt"
NAMES = ("DATA", "RING", "CGDP", "AGWU+IDPA", "SGWU+UDPA", "ASGD+UDPA", "PIPELINE", "MASTER_SLAVE", "LOCAL")


def results() -> list[TrialResult]:
    """Nine runs, which is more than there are colours: some end with nearly the same score, and one failed."""
    made = []
    for number, name in enumerate(NAMES):
        scores = tuple((0.5 * step * (1 + number / 4), 0.98 - 0.9 * math.exp(-step / 2)) for step in range(1, 7))
        sent = 4096.0 * number if "+" in name else math.nan
        made.append(
            TrialResult(STRATEGIES[name], 3, "accuracy", scores, 0.01 * (1 + number), 0.1 * number, sent, 4.0 + number)
        )
    failed = TrialResult(STRATEGIES["TREE"], 3, failure="3 ranks are no power of 2")
    return [*made[:4], failed, *made[4:]]


def outline_of(figure: Any) -> Iterator[str]:
    """The panels of a figure, with their labels, curves and bars."""
    for axes in figure.axes:
        yield f"panel: x {axes.get_xlabel()!r}, y {axes.get_ylabel()!r}"
        if names := [label.get_text() for label in axes.get_yticklabels() if axes.patches and label.get_text()]:
            yield f"  rows: {', '.join(names)}"
        for line in axes.lines:
            x, y = line.get_data()
            look = f"{line.get_color()} {line.get_linestyle()!r}"
            yield f"  curve {look}: {len(x)} points to {float(x[-1]), float(y[-1])}"
        yield from (f"  bar {bar.get_facecolor()}: {bar.get_width()}" for bar in axes.patches)
        yield from (f"  text {text.get_text()!r} {text.get_color()}" for text in axes.texts)


def test_the_comparison_of_fixed_results() -> None:
    pytest.importorskip("matplotlib")
    found = results()
    figure = figure_of([each for each in found if not each.failure])
    text = "\n".join([*outline_of(figure), "", markdown(found), write_csv_text(found)])
    check_golden(COMPARISON, rounded(text))


def _ticks_within(axes: Any) -> Iterator[Any]:
    """The labels of ticks that are drawn: matplotlib makes one beyond each end of an axis, too."""
    for axis in (axes.xaxis, axes.yaxis):
        low, high = sorted(axis.get_view_interval())
        yield from (tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high)


@pytest.mark.parametrize("name", ["", "a_name_of_my_own_for_settings"])
def test_no_two_texts_of_the_figure_overlap(name: str) -> None:
    pytest.importorskip("matplotlib")
    found = [each for each in results() if not each.failure]
    if name:
        found[3] = replace(found[3], trial=TrainingTrial(name, "", ""))
    figure = figure_of(found)
    figure.canvas.draw()
    boxes = [
        (text.get_text(), text.get_window_extent())
        for axes in figure.axes
        for text in (*axes.texts, *_ticks_within(axes), axes.xaxis.label, axes.yaxis.label)
        if text.get_text()
    ]
    for (one, first), (other, second) in itertools.combinations(boxes, 2):
        width = min(first.x1, second.x1) - max(first.x0, second.x0)
        height = min(first.y1, second.y1) - max(first.y0, second.y0)
        assert width <= 1 or height <= 1, (one, other)
    right, top = figure.bbox.x1, figure.bbox.y1
    for text, box in boxes:
        assert box.x0 >= -1 and box.y0 >= -1 and box.x1 <= right + 1 and box.y1 <= top + 1, text
