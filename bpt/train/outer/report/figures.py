"""Figures of one run of the outer layer, in the manner of Fig. 11 to 15 of the paper (BPT-CNN, section 5)."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bpt.parallel.outer.quantities import bytes_moved
from bpt.train.outer.report.record import NodeRow, RunRecord, TestRow
from bpt.train.outer.report.style import (
    BLACK,
    BLUE,
    COLOURS,
    FEW,
    GREY,
    INCHES,
    MARKS,
    ORANGE,
    check_matplotlib,
    grouped_bars,
    legend,
    line,
    new_figure,
    save,
    whole_ticks,
)
from bpt.train.outer.report.tables import make_folder

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


BARS = 32  # nodes up to which each has a labelled bar; more become an area
POINTS = 1000  # updates up to which each has a point; for more, their range is drawn
NAMED = 7  # workers up to which each has its own colour
DASHED = (0, (4, 2))
ACTIVITIES: Mapping[str, tuple[str, str, Callable[[NodeRow], float]]] = {
    "computing": (BLUE, "", lambda row: row.computed_seconds),
    "waiting for the server": (ORANGE, "///", lambda row: row.waited_seconds),
    "idle at the end": (GREY, "", lambda row: row.idle_at_end_seconds),
}


def draw(record: RunRecord, folder: str | os.PathLike[str]) -> list[Path]:
    """Write PNG files of the available results: scores, times, bytes, balance and updates.

    Returns:
        The files written; figures without rows are left out.

    Raises:
        UserError: matplotlib is missing.
        WriteError: a file or the folder could not be written.
    """
    check_matplotlib()
    place = make_folder(folder)
    figures: dict[str, Callable[[RunRecord], Figure | None]] = {
        "accuracy": lambda record: draw_scores(record.title, {"": [record]}),
        "execution_time": draw_nodes,
        "time_to_accuracy": lambda record: draw_times_to(record.title, {"": [record]}),
        "bytes_moved": draw_bytes,
        "balance_index": draw_balance,
        "updates": draw_updates,
    }
    drawn = ((name, figure(record)) for name, figure in figures.items())
    return [save(figure, place / f"{name}.png") for name, figure in drawn if figure is not None]


def draw_nodes(record: RunRecord) -> Figure | None:
    """Draw how each node spent the execution time of one run, as in Fig. 12 and 14."""
    rows = sorted(record.nodes, key=lambda row: row.worker)
    if not rows:
        return None
    few = len(rows) <= BARS
    figure, (axes,) = new_figure(record.title, height=1.35 + 0.27 * len(rows) if few else INCHES[1])
    _bars(axes, record, rows) if few else _areas(axes, record, rows)
    legend(figure, axes)
    return figure


def _bars(axes: Axes, record: RunRecord, rows: Sequence[NodeRow]) -> None:
    places, end = range(len(rows)), np.zeros(len(rows))
    for label, (colour, hatch, seconds_of) in ACTIVITIES.items():
        seconds = np.array([seconds_of(row) for row in rows])
        axes.barh(
            places, seconds, 0.7, end, color=colour, hatch=hatch, edgecolor="white", linewidth=0.5, label=label
        )  # fmt: skip
        end += seconds
    axes.axvline(record.execution_time, color=BLACK, linestyle=DASHED, linewidth=1.2, label="execution time")
    axes.set_yticks(places, [f"{row.worker} ({row.host})" for row in rows], parse_math=False)
    axes.set_xlim(0, max(record.execution_time, float(end.max())) * 1.02 or 1)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlabel("time (s)")
    axes.set_ylabel("computing node")


def _areas(axes: Axes, record: RunRecord, rows: Sequence[NodeRow]) -> None:
    places, end = range(len(rows)), np.zeros(len(rows))
    for label, (colour, _, seconds_of) in ACTIVITIES.items():
        start, end = end, end + [seconds_of(row) for row in rows]
        axes.fill_between(places, start, end, step="mid", color=colour, linewidth=0, label=label)
    axes.axhline(record.execution_time, color=BLACK, linestyle=DASHED, linewidth=1.2, label="execution time")
    axes.set_xlim(-0.5, len(rows) - 0.5)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("computing node")
    axes.set_ylabel("time (s)")


def draw_bytes(record: RunRecord) -> Figure | None:
    """Draw the bytes of weights to and from the server of one run, against Eq. 11, as in Fig. 15 (a)."""
    if not record.updates or not record.weights:
        return None
    figure, (axes,) = new_figure(record.title)
    rows = sorted(record.updates, key=lambda row: row.seconds_since_start)
    seconds = [0.0, *(row.seconds_since_start for row in rows)]
    expected = [bytes_moved(record.weights, 1, count) / 2**20 for count in range(len(rows) + 1)]
    axes.plot(
        seconds, expected, color=ORANGE, linewidth=3.5, alpha=0.6, drawstyle="steps-post",
        label=r"Eq. 11: $2 c_w$ a submission",
    )  # fmt: skip
    if any(row.moved for row in rows):
        latest: dict[int, int] = {}
        counted = [0.0]
        for row in rows:
            counted.append(counted[-1] + (row.moved - latest.get(row.worker, 0)) / 2**20)
            latest[row.worker] = row.moved
        axes.plot(seconds, counted, color=BLUE, linewidth=1.3, drawstyle="steps-post", label="counted")
    elif record.nodes:
        total = record.bytes_counted() / 2**20
        axes.plot([record.execution_time], [total], "o", color=BLUE, markersize=5, label="counted")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("time (s)")
    axes.set_ylabel("weights moved (MiB)")
    legend(figure, axes)
    return figure


def draw_balance(record: RunRecord) -> Figure | None:
    """Draw the balance index of each iteration of one run, as in Fig. 15 (b)."""
    indices = record.balance_indices()
    if not indices:
        return None
    figure, (axes,) = new_figure(record.title)
    together = record.balance_index()
    passes = range(1, len(indices) + 1)
    mark = "o" if len(indices) <= FEW else ""
    axes.plot(passes, indices, color=BLUE, marker=mark, markersize=4, linewidth=1.3, label="of one iteration")
    axes.axhline(together, color=ORANGE, linestyle=DASHED, linewidth=1.3, label=f"of the run: {together:.3f}")
    axes.set_ylim(*unit_range([*indices, together]))
    axes.set_xlabel("iteration (pass of each node over its samples)")
    axes.set_ylabel("balance index (mean / max of times)")
    whole_ticks(axes)
    legend(figure, axes)
    return figure


def draw_updates(record: RunRecord) -> Figure | None:
    """Draw the staleness and the factor of each update."""
    if not record.updates:
        return None
    factors = any(not np.isnan(row.factor) for row in record.updates)
    figure, panels = new_figure(record.title, panels=1 + factors, height=INCHES[1] * (1 + 0.4 * factors))
    _scatter(panels[0], record, [row.staleness for row in record.updates])
    panels[0].set_ylabel("staleness (versions)")
    most = max(row.staleness for row in record.updates) or 1
    panels[0].set_ylim(-0.06 * most, 1.08 * most)
    whole_ticks(panels[0], x=False)
    if factors:
        _scatter(panels[1], record, [row.factor for row in record.updates])
        panels[1].set_ylabel("factor of the update")
        panels[1].set_ylim(bottom=0)
    panels[-1].set_xlabel("version of the global weights")
    whole_ticks(panels[-1])
    legend(figure, panels[0])
    return figure


def _scatter(axes: Axes, record: RunRecord, values: Sequence[float]) -> None:
    """Draw a point for each update or, if there are many, the range of nine out of ten."""
    versions = np.array([row.version for row in record.updates])
    heights = np.array(values, float)
    if len(versions) > POINTS:
        edges = np.linspace(versions.min(), versions.max() + 1, 101)
        groups = np.digitize(versions, edges) - 1
        bins = [group for group in range(100) if (~np.isnan(heights[groups == group])).any()]
        middle = [(edges[group] + edges[group + 1]) / 2 for group in bins]
        low, mid, high = (
            [float(np.nanpercentile(heights[groups == group], percent)) for group in bins] for percent in (5, 50, 95)
        )
        axes.fill_between(middle, low, high, color=BLUE, alpha=0.25, linewidth=0, label="9 of 10 updates")
        axes.plot(middle, mid, color=BLUE, linewidth=1.3, label="median")
        return
    workers = record.workers
    if len(workers) > NAMED:
        axes.plot(versions, heights, ".", color=BLUE, markersize=4, label="update")
        return
    for number, worker in enumerate(workers):
        own = np.array([row.worker == worker for row in record.updates])
        axes.plot(
            versions[own], heights[own], MARKS[number], color=COLOURS[number], markersize=4, label=f"worker {worker}"
        )


def unit_range(values: Sequence[float]) -> tuple[float, float]:
    """Return the limits of an axis for numbers from 0 to 1: from 0.1 below the least up to 1."""
    return max(0.0, np.floor(min(values) * 10 - 0.5) / 10), 1.02


Runs = Mapping[str, Sequence[RunRecord]]
"""The runs of each strategy by its name; they differ in their seed."""

LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.92, 0.95, 0.97, 0.98, 0.99, 0.995, 0.999)
SHOWN = 5  # levels in a figure


def draw_scores(title: str, runs: Runs) -> Figure | None:
    """Draw accuracy (a) and AUC (b) of the first test net over epochs, as in Fig. 11; for several runs, the mean."""
    panels: dict[str, Callable[[TestRow], float]] = {
        "test accuracy": lambda row: row.accuracy,
        "AUC": lambda row: row.auc,
    }
    curves = {
        label: {name: points for name, records in runs.items() if (points := _curve(records, score))}
        for label, score in panels.items()
    }
    known = {label: by_name for label, by_name in curves.items() if by_name}
    if not known:
        return None
    figure, all_axes = new_figure(title, panels=len(known), beside=True)
    for axes, (label, by_name) in zip(all_axes, known.items(), strict=True):
        for number, name in enumerate(runs):
            if name in by_name:
                epochs, values = zip(*by_name[name], strict=True)
                line(axes, number, epochs, values, name)
        axes.set_xlabel("epoch")
        axes.set_ylabel(label)
        whole_ticks(axes)
    legend(figure, all_axes[0])
    return figure


def draw_times_to(title: str, runs: Runs, levels: Sequence[float] = ()) -> Figure | None:
    """Draw the time until tests reached accuracies, as in Fig. 13.

    Args:
        levels: the accuracies; by default the highest round ones that some strategy has reached in all its runs.
    """
    reached = max((_reached(records) for records in runs.values()), default=0.0)
    chosen = levels or [level for level in LEVELS if level <= reached][-SHOWN:]
    if not chosen:
        return None
    figure, (axes,) = new_figure(title)
    values = {
        name: [[record.time_to(level) for record in records] for level in chosen] for name, records in runs.items()
    }
    grouped_bars(axes, [f"{level:g}" for level in chosen], values)
    axes.set_xlabel("test accuracy")
    axes.set_ylabel("time to reach it (s)")
    legend(figure, axes)
    return figure


def _reached(records: Sequence[RunRecord]) -> float:
    """Return the accuracy that all runs have reached."""
    best = [record.best_accuracy() for record in records]
    return 0.0 if any(map(math.isnan, best)) else min(best)


def _curve(records: Sequence[RunRecord], score: Callable[[TestRow], float]) -> list[tuple[float, float]]:
    """Return (epoch, score); for several runs, the interpolated mean at the epochs of the first one."""
    curves = []
    for record in records:
        points = sorted((row.epoch, score(row)) for row in record.tests_of() if not math.isnan(score(row)))
        if not points:
            return []
        curves.append(np.array(points))
    first, last = max(curve[0, 0] for curve in curves), min(curve[-1, 0] for curve in curves)
    epochs = [epoch for epoch in curves[0][:, 0] if first <= epoch <= last]
    means = np.mean([np.interp(epochs, curve[:, 0], curve[:, 1]) for curve in curves], axis=0)
    return list(zip(epochs, means.tolist(), strict=True))
