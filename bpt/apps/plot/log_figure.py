"""The figure of one or several training runs: losses, test outputs and learning rates, with the best test marked."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bpt.apps.plot.training_log import LogRow, TrainingLog, read_log
from bpt.base.atomic import check_place
from bpt.base.errors import UsageError, UserError
from bpt.train.outer.report.style import (
    BLUE,
    COLOURS,
    DASHES,
    FEW,
    GREY,
    RED,
    SMALL,
    check_picture,
    new_figure,
    save,
    without_glyph_warnings,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


FORMATS = (".png", ".svg")
LOSS, RATE = "loss", "learning rate"
CHARTS = (
    "Test accuracy vs. Iters", "Test accuracy vs. Seconds", "Test loss vs. Iters", "Test loss vs. Seconds",
    "Train learning rate vs. Iters", "Train learning rate vs. Seconds", "Train loss vs. Iters",
    "Train loss vs. Seconds",
)  # fmt: skip
"""The axes of the chart types 0 ... 7 of Caffe's plot_training_log.py."""
_PANEL = 2.1  # inches
_MARKERS = ("", "^", "s", "D", "v", "P")  # of runs that share a colour
_MARKED = 8  # places of a curve with a marker
_LEGEND, _LONGEST = 0.85, 56  # the legend's part of the figure's width; most letters of a run's name in it
_DECADES = 30  # ratio of the largest to the smallest loss or rate above which the axis is logarithmic


class Curve(NamedTuple):
    """A curve of one run.

    Attributes:
        x: the iterations or seconds of the points.
        y: the values of the points.
        best: the number of the point that is marked; ``None``: none.
    """

    x: list[float]
    y: list[float]
    best: int | None = None


class CurvePanel(NamedTuple):
    """The curves of one quantity.

    Attributes:
        label: the quantity.
        curves: (number of the run, label of the curve, curve).
    """

    label: str
    curves: list[tuple[int, str, Curve]]


def check_figure(path: str) -> None:
    """Raise a UserError if no figure can be written to ``path``, before the work is done."""
    check_picture(path, FORMATS, f"{path}: figures are written to files that end in {' or '.join(FORMATS)}")
    check_place(path)


def draw(logs: Sequence[TrainingLog], path: str, chart: int | None = None, seconds: bool = False) -> Path:
    """Write the figure of ``logs``; see figure_of.

    Raises:
        UserError: there is nothing to show.
        WriteError: the file could not be written.
    """
    return save(figure_of(logs, chart, seconds), path)


@without_glyph_warnings()
def figure_of(logs: Sequence[TrainingLog], chart: int | None = None, seconds: bool = False) -> Figure:
    """Return the figure that shows ``logs`` over each other.

    Args:
        logs: the logs.
        chart: the number of the only chart of CHARTS to draw; ``None``: draw all quantities.
        seconds: draw them against time instead of iterations.

    Raises:
        UserError: there is nothing to show.
    """
    if chart is not None:
        seconds = CHARTS[chart].endswith("Seconds")
    found = [panel for panel in panels(logs, seconds, chart) if panel.curves]
    if not found:
        what = f'nothing of the kind "{CHARTS[chart]}"' if chart is not None else "nothing to show"
        raise UserError(f"the logs have {what}: {', '.join(log.name for log in logs)}")
    figure, places = new_figure(CHARTS[chart] if chart is not None else "", len(found), 0.7 + _PANEL * len(found))
    for axes, panel in zip(places, found, strict=True):
        _draw_panel(axes, panel, len(logs) > 1)
    places[-1].set_xlabel("seconds" if seconds else "iteration")
    _draw_legend(places[0], found, [log.name for log in logs])
    return figure


def panels(logs: Sequence[TrainingLog], seconds: bool = False, chart: int | None = None) -> list[CurvePanel]:
    """Return the panels of losses, of each other test output, and of learning rates; with ``chart``, only its curves.

    A panel may have no curves. For the arguments see figure_of.
    """
    wanted = CHARTS[chart].split(" vs. ")[0] if chart is not None else ""
    losses: list[tuple[int, str, Curve]] = []
    rates: list[tuple[int, str, Curve]] = []
    outputs: dict[str, list[tuple[int, str, Curve]]] = {}
    for run, log in enumerate(logs):
        if wanted in ("", "Train loss"):
            losses += _curves(run, "training", log.losses or log.train, seconds, LOSS)
        if wanted in ("", "Train learning rate"):
            rates += _to_the_end(_curves(run, RATE, log.losses or log.train, seconds, RATE), log, seconds)
        for name in dict.fromkeys(name for row in log.test for name in row.values):
            if name in log.weighted or "loss" in name.lower():
                if wanted in ("", "Test loss"):
                    label = "test" if name == LOSS else f"test {name}"
                    losses += _curves(run, label, log.test, seconds, name, min)
            elif wanted in ("", "Test accuracy"):
                outputs.setdefault(name, []).extend(_curves(run, name, log.test, seconds, name, max))
    return [
        CurvePanel(LOSS, losses),
        *(CurvePanel(f"test {name}", curves) for name, curves in outputs.items()),
        CurvePanel(RATE, rates),
    ]


def _curves(
    run: int,
    label: str,
    rows: Sequence[LogRow],
    seconds: bool,
    name: str,
    best: Callable[..., int] | None = None,
) -> list[tuple[int, str, Curve]]:
    """Return one curve, or none if there are no points.

    If a run resumed from a snapshot, the repeated iterations replace the earlier ones.
    """
    points: list[tuple[int, float, float]] = []
    for row in rows:
        value = row.rate if name == RATE else row.values.get(name)
        while points and points[-1][0] >= row.iteration:
            points.pop()
        if value is not None and math.isfinite(value):
            points.append((row.iteration, row.seconds if seconds else float(row.iteration), value))
    if not points:
        return []
    y = [value for _, _, value in points]
    marked = best(range(len(y)), key=y.__getitem__) if best and len(y) > 1 else None
    return [(run, label, Curve([x for _, x, _ in points], y, marked))]


def _to_the_end(rates: list[tuple[int, str, Curve]], log: TrainingLog, seconds: bool) -> list[tuple[int, str, Curve]]:
    """Extend each curve of rates to the last loss, whose rate the log lacks, if the rate was constant before."""
    for _, _, (x, y, _) in rates:
        last = log.losses[-1] if log.losses else None
        end = (last.seconds if seconds else float(last.iteration)) if last else math.nan
        if end > x[-1] and y[-2:] == [y[-1]] * 2:
            x.append(end)
            y.append(y[-1])
    return rates


def _draw_panel(axes: Axes, panel: CurvePanel, several: bool) -> None:
    labels = list(dict.fromkeys(label for _, label, _ in panel.curves))
    notes = []
    for run, label, (x, y, best) in panel.curves:
        kind = labels.index(label)
        colour = COLOURS[run % len(COLOURS)] if several else (BLUE, RED)[kind % 2]
        dash = DASHES[(run if panel.label == RATE else kind) % len(DASHES)]  # equal rates would hide each other
        steps = panel.label == RATE and len(set(y)) <= len(y) / 2
        plain = label == "training" or panel.label == RATE
        again = _marker_of(run)
        axes.plot(
            x, y, color=colour, linewidth=1.0 if label == "training" else 1.5, alpha=0.8 if plain else 1.0,
            linestyle=dash, marker=again or ("" if plain or len(x) > FEW else "o"), markersize=5 if again else 2.5,
            markevery=max(1, len(x) // _MARKED) if again else 1, drawstyle="steps-post" if steps else "default",
        )  # fmt: skip
        if best is not None:
            axes.plot(x[best], y[best], marker="*", markersize=9, color=colour, markeredgecolor="black",
                      markeredgewidth=0.5, linestyle="", zorder=3)  # fmt: skip
            notes.append((f"best {y[best]:.4g} at {x[best]:,.0f}", colour if several else "black"))
    low = panel.label != LOSS  # losses fall and scores rise, so the opposite corner is free for notes
    for number, (note, colour) in enumerate(reversed(notes) if low else notes):
        height = 0.05 + 0.1 * number if low else 0.95 - 0.1 * number
        axes.text(0.99, height, note, transform=axes.transAxes, ha="right", va="bottom" if low else "top",
                  fontsize=SMALL - 1, color=colour, parse_math=False)  # fmt: skip
    axes.set_ylabel(panel.label, parse_math=False)
    axes.grid(axis="y", color=GREY, alpha=0.35, linewidth=0.5)
    values = [value for _, _, curve in panel.curves for value in curve.y]
    if low and panel.label != RATE:
        return
    if min(values) > 0 and max(values) > _DECADES * min(values):
        axes.set_yscale("log")
    elif panel.label == RATE:
        axes.set_ylim(min(0, 1.1 * min(values)), 1.1 * max(values) or 1)
        axes.ticklabel_format(axis="y", style="sci", scilimits=(-3, 4), useMathText=True)


def _marker_of(run: int) -> str:
    """Return the marker that tells a run from an earlier one of the same colour; "" for the first of a colour."""
    return _MARKERS[run // len(COLOURS) % len(_MARKERS)]


def _draw_legend(axes: Axes, found: Sequence[CurvePanel], names: Sequence[str]) -> None:
    """Draw the legend over the first panel: the colours of runs, if there are several, and the meaning of dashes."""
    from matplotlib.lines import Line2D  # noqa: PLC0415  an extra, and slow to import

    first = found[0]
    labels = list(dict.fromkeys(label for _, label, _ in first.curves))
    several = len(names) > 1
    cut = [name if len(name) <= _LONGEST else f"…{name[1 - _LONGEST :]}" for name in names]
    handles = [
        Line2D([], [], color=COLOURS[run % len(COLOURS)], marker=_marker_of(run), markersize=5, label=name)
        for run, name in enumerate(cut)
    ]
    handles = handles if several else []
    if len(labels) > 1:
        for kind, label in enumerate(labels):
            colour = "black" if several else (BLUE, RED)[kind % 2]
            handles.append(Line2D([], [], color=colour, linestyle=DASHES[kind], label=label))
    if any(curve.best is not None for panel in found for _, _, curve in panel.curves):
        star = Line2D([], [], color="white", marker="*", markersize=8, markeredgecolor="black", linestyle="")
        star.set_label("best test")
        handles.append(star)
    room = _LEGEND * axes.figure.bbox.width
    for columns in range(min(4, len(handles)), 0, -1):
        legend = axes.legend(
            handles=handles, loc="lower left", bbox_to_anchor=(0, 1.01), ncols=columns, fontsize=SMALL, frameon=False
        )
        for text in legend.get_texts():
            text.set_parse_math(False)
        if legend.get_window_extent().width <= room:  # a wider legend would make the panels narrow
            break


def plot_logs(output: str, logs: Sequence[str], chart: int | None = None, seconds: bool = False) -> Path:
    """Write the figure of the log files ``logs``, and return its path; for the arguments see figure_of.

    Raises:
        UserError: matplotlib is missing, or there is nothing to show.
        UsageError: the output's suffix is none of FORMATS, no chart has this number, or no log is named.
        FileError: a file cannot be read, or is no log.
        WriteError: the figure could not be written.
    """
    if chart is not None and not 0 <= chart < len(CHARTS):
        kinds = "; ".join(f"{number}: {words}" for number, words in enumerate(CHARTS))
        raise UsageError(f"there is no chart type {chart} ({kinds})")
    if not logs:
        raise UsageError("name at least one log")
    check_figure(output)
    read = [read_log(path) for path in logs]
    if len({log.name for log in read}) < len(read):  # logs of one name in different folders
        read = [replace(log, name=os.path.normpath(path)) for log, path in zip(read, logs, strict=True)]
    return draw(read, output, chart, seconds)
