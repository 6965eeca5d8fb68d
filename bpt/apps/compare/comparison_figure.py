"""The figure of ``bpt compare``: score against time, and beneath it iteration time, waiting and bytes of each run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bpt.apps.compare.trial_result import TrialResult
from bpt.train.outer.report.style import (
    COLOURS,
    DASHES,
    DOTS,
    SMALL,
    check_matplotlib,
    save,
    without_glyph_warnings,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_GAP = 0.075  # distance of two labels, as a part of the panel's height


def draw(results: Sequence[TrialResult], path: Path) -> Path:
    """Draw the runs that did not fail.

    Raises:
        UserError: there is no matplotlib.
        WriteError: the file could not be written.
    """
    return save(figure_of([result for result in results if not result.failure]), path)


@without_glyph_warnings()
def figure_of(results: Sequence[TrialResult]) -> Figure:
    """Return the figure of ``results``, at least one.

    Raises:
        UserError: there is no matplotlib.
    """
    check_matplotlib()
    # An extra, and slow to import.
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(8, 3.6 + 0.9 + 0.22 * len(results)), dpi=DOTS, layout="constrained")
    FigureCanvasAgg(figure)
    heights = (3.2, 0.9 + 0.22 * len(results))
    grid = figure.add_gridspec(2, 3, height_ratios=heights)
    _draw_scores(figure.add_subplot(grid[0, :]), results)
    panels = (
        ("time of an iteration\n(ms)", [1000 * each.seconds_an_iteration for each in results]),
        ("waiting\n(% of the time)", [100 * each.waiting for each in results]),
        ("sent by a rank\n(KiB an iteration)", [each.bytes_sent / 1024 for each in results]),
    )
    for column, (label, values) in enumerate(panels):
        _draw_bars(figure.add_subplot(grid[1, column]), label, values, results if column == 0 else ())
    return figure


def _draw_scores(axes: Axes, results: Sequence[TrialResult]) -> None:
    axes.set_xlabel("time since training began (s)", fontsize=SMALL)
    axes.set_ylabel(f"test {results[0].measure}", fontsize=SMALL)
    ends = []
    for number, each in enumerate(results):
        points = [(x, y) for x, y in each.scores if not math.isnan(y)]
        if points:
            style = {"color": _colour(number), "linestyle": _dashes(number)}
            axes.plot(*zip(*points, strict=True), marker="o", markersize=2.5, **style)
            ends.append((number, points[-1]))
    axes.margins(y=0.08)
    low, high = axes.get_ylim()
    heights = spread([(y - low) / (high - low) for _, (_, y) in ends])
    for (number, _), height in zip(ends, heights, strict=True):
        sample = ((1.01, 1.05), (height, height))
        axes.plot(*sample, color=_colour(number), linestyle=_dashes(number), transform=axes.transAxes, clip_on=False)
        axes.text(
            1.06,
            height,
            results[number].trial.name,
            fontsize=SMALL,
            va="center",
            transform=axes.transAxes,
            parse_math=False,
        )


def spread(heights: Sequence[float], gap: float = _GAP) -> list[float]:
    """Return ``heights`` (0 to 1) moved so that any two are at least ``gap`` apart, in the same order.

    Labels that do not fit in 0 to 1 continue below 0.
    """
    order = sorted(range(len(heights)), key=lambda place: -heights[place])
    moved = list(heights)
    top = max(1.0, gap * (len(heights) - 1))
    for rank, place in enumerate(order):  # leave room for those below
        floor = gap * (len(order) - 1 - rank)
        moved[place] = min(max(heights[place], floor), top)
        if rank:
            moved[place] = min(moved[place], moved[order[rank - 1]] - gap)
    return moved


def _draw_bars(axes: Axes, label: str, values: Sequence[float], named: Sequence[TrialResult]) -> None:
    places = range(len(values))
    lengths = [0.0 if math.isnan(value) else value for value in values]
    bars = axes.barh(places, lengths, color=[_colour(number) for number in places], height=0.6)
    axes.bar_label(bars, [_bar_label(value) for value in values], fontsize=7, padding=2)
    axes.set_xlim(0, max(*lengths, 1e-9) * 1.45 if any(lengths) else 1)
    axes.set_yticks(places, [each.trial.name for each in named] if named else [""] * len(values), fontsize=SMALL)
    if any(lengths):
        axes.locator_params(axis="x", nbins=3, prune="upper")  # the last number would touch the next panel's first one
    else:
        axes.set_xticks([])
    axes.invert_yaxis()
    axes.set_xlabel(label, fontsize=SMALL)


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def _dashes(number: int) -> Any:
    """Return the line style of a run; a colour that occurs again has another one."""
    return DASHES[(number + number // len(COLOURS)) % len(DASHES)]


def _bar_label(value: float) -> str:
    if math.isnan(value):
        return "not counted"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
