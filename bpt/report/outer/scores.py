"""Figures of test scores: accuracy and AUC over epochs, and the time that accuracies took."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from bpt.report.outer.bars import grouped_bars
from bpt.report.outer.record import RunRecord, TestRow
from bpt.report.outer.style import legend, line, new_figure, whole_ticks

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Runs = Mapping[str, Sequence[RunRecord]]
"""By the name of each way to train, its runs, which differ in their seed."""

LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.92, 0.95, 0.97, 0.98, 0.99, 0.995, 0.999)
SHOWN = 5  # levels in a figure


def draw_scores(title: str, runs: Runs) -> Figure | None:
    """Fig. 11: accuracy (a) and AUC (b) of the first test net over epochs; of several runs of a way, their mean."""
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
    """Fig. 13: the time until tests reached accuracies.

    Args:
        levels: the accuracies; by default the highest round ones that some way has reached in all its runs.
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
    """The accuracy that all of them have reached."""
    best = [record.best_accuracy() for record in records]
    return 0.0 if any(map(math.isnan, best)) else min(best)


def _curve(records: Sequence[RunRecord], score: Callable[[TestRow], float]) -> list[tuple[float, float]]:
    """(epoch, score). Of several runs the mean at the epochs of the first, as far as all go; between tests, a line."""
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
