"""Figures that compare runs, in the manner of Fig. 11 to 15 of the paper (BPT-CNN, section 5)."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bpt.train.outer.report.figures import draw_scores, draw_times_to
from bpt.train.outer.report.record import RunRecord
from bpt.train.outer.report.style import bars, check_matplotlib, legend, line, new_figure, save
from bpt.train.outer.report.tables import make_folder

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MEASURES: Mapping[str, tuple[str, Callable[[RunRecord], float]]] = {
    "execution_time": ("execution time (s)", lambda record: record.execution_time),
    "waiting": ("waiting for the server (% of the run)", lambda record: 100 * record.waited_share()),
    "balance_index": ("balance index", lambda record: record.balance_index()),
    "bytes_moved": ("weights moved (MiB)", lambda record: record.bytes_counted() / 2**20),
}


def compare(
    records_by_name: Mapping[str, RunRecord | Sequence[RunRecord]], folder: str | os.PathLike[str], title: str = ""
) -> list[Path]:
    """Write PNG files that compare training strategies: execution time, waiting, balance index, bytes, scores.

    Args:
        records_by_name: the run of each strategy, or its runs with different seeds: then bars are means, with whiskers
            from the least to the greatest.

    Returns:
        The files written; scores are left out if no run has tests.

    Raises:
        UserError: matplotlib is missing.
        WriteError: a file or the folder could not be written.
    """
    check_matplotlib()
    place = make_folder(folder)
    runs = {name: [each] if isinstance(each, RunRecord) else list(each) for name, each in records_by_name.items()}
    assert runs and all(runs.values()), "nothing to compare"
    figures: dict[str, Figure | None] = {
        name: _draw_bars(title, label, {way: [measure(record) for record in records] for way, records in runs.items()})
        for name, (label, measure) in MEASURES.items()
    }
    figures["accuracy"] = draw_scores(title, runs)
    figures["time_to_accuracy"] = draw_times_to(title, runs)
    return [save(figure, place / f"{name}.png") for name, figure in figures.items() if figure is not None]


def draw_lines(
    path: str | os.PathLike[str], title: str, x: str, y: str, series: Mapping[str, Sequence[tuple[float, float]]]
) -> Path:
    """Write a PNG file with a curve for each of ``series``, over nodes or samples, as in Fig. 12, 14 and 15.

    Args:
        x, y: the labels of the axes, with units.
        series: points from left to right, by the name of the curve.

    Raises:
        UserError: matplotlib is missing.
        WriteError: the file could not be written.
    """
    figure, (axes,) = new_figure(title)
    for number, (name, points) in enumerate(series.items()):
        line(axes, number, [point[0] for point in points], [point[1] for point in points], name)
    axes.set_ylim(bottom=0)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    legend(figure, axes)
    return save(figure, path)


def _draw_bars(title: str, label: str, values: Mapping[str, Sequence[float]]) -> Figure:
    repeats = {len(each) for each in values.values()}
    figure, (axes,) = new_figure(title)
    bars(axes, values)
    axes.set_ylabel(label)
    if repeats != {1}:
        axes.set_xlabel(
            f"mean of {min(repeats)} runs; whiskers: least and greatest"
            if len(repeats) == 1
            else "means; whiskers: least and greatest"
        )
    return figure
