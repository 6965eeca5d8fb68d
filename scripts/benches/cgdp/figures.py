"""The figures of ``scripts/bench cgdp``, after Fig. 3 and 6 to 8 of the paper, as PNG files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from scripts.benches.cgdp.results import (
    ALLREDUCE,
    ALONE,
    BLOCK,
    MODEL,
    ORIGINAL,
    SEARCH,
    Outcome,
    fixed,
    fixed_sizes,
    runs,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from scripts.benches.cgdp.scaling import Scaled
    from scripts.benches.harness.curve import Point

# Distinct for readers with any kind of colour vision, and in grey (Okabe and Ito).
COLOURS = {ORIGINAL: "#D55E00", ALLREDUCE: "#009E73", ALONE: "#000000", SEARCH: "#0072B2", MODEL: "#CC79A7"}
CGDP_COLOUR, NAIVE_COLOUR = "#56B4E9", "#E69F00"
DASHES = {ORIGINAL: (0, (6, 2)), ALLREDUCE: (0, (1, 1.5)), ALONE: (0, (4, 1.5, 1, 1.5))}
Draw = Callable[[Path, str, Mapping[str, Outcome]], None]
INCHES, DOTS = (6.2, 3.4), 200


def draw_sizes(path: Path, title: str, outcomes: Mapping[str, Outcome]) -> None:
    """Fig. 3: running time of 10 iterations against the chunk size, as mean, least and most; others as lines."""
    figure, axes = _new(title)
    sizes = fixed_sizes(outcomes)
    blocks = [outcomes[fixed(size)].blocks for size in sizes]
    if sizes:
        means = [fmean(each) for each in blocks]
        below = [mean - min(each) for mean, each in zip(means, blocks, strict=True)]
        above = [max(each) - mean for mean, each in zip(means, blocks, strict=True)]
        axes.errorbar(
            sizes, means, [below, above], color=CGDP_COLOUR, marker="o", markersize=4, capsize=3, linewidth=1.5,
            label="CGDP: mean, min, max",
        )  # fmt: skip
    for way in (ORIGINAL, ALLREDUCE, ALONE):
        _line(axes, way, outcomes)
    for way, mark in ((SEARCH, "*"), (MODEL, "D")):
        if way in outcomes:
            label = f"{way}: largest chunk {max(outcomes[way].lengths, default=0)}"
            at = max(outcomes[way].lengths, default=1)
            size = 11 if mark == "*" else 6
            axes.plot(
                [at], [fmean(outcomes[way].blocks)], mark, color=COLOURS[way], markersize=size, label=label, zorder=5
            )
    axes.set_xscale("log")
    ticks = sizes or [1]
    axes.set_xticks(ticks, [str(size) for size in ticks])
    axes.minorticks_off()
    axes.set_xlabel("chunk size (layers)")
    axes.set_ylabel(f"running time for {BLOCK} iterations (s)")
    _save(figure, axes, path)


def draw_search(path: Path, title: str, outcomes: Mapping[str, Outcome]) -> None:
    """Fig. 8: time of each 10 iterations of training against the iteration, while the chunk size is searched."""
    figure, axes = _new(title)
    for way in (SEARCH, MODEL):
        if way not in outcomes:
            continue
        search = outcomes[way].search
        if search is None:
            continue
        ends, seconds = intervals((*search.settling, *search.after))
        axes.plot(ends, seconds, color=COLOURS[way], marker="o", markersize=3, linewidth=1.2, label=way)
        axes.axvline(len(search.settling), color=COLOURS[way], linewidth=0.8, alpha=0.5)
    for way in (ORIGINAL, ALONE):
        _line(axes, way, outcomes)
    if fixed(1) in outcomes:
        mean = fmean(outcomes[fixed(1)].blocks)
        axes.axhline(mean, color=NAIVE_COLOUR, linestyle=(0, (3, 1)), linewidth=1.3, label="OrigCGDP (chunk size 1)")
    axes.set_xlim(left=0)
    axes.set_xlabel("iteration (vertical line: the search ends)")
    axes.set_ylabel(f"time for {BLOCK} iterations (s)")
    _save(figure, axes, path)


def draw_scaling(path: Path, title: str, scaled: Scaled) -> None:
    """Fig. 6: time of an iteration (a) and memory of a rank (b) for each number of ranks, a bar for each way."""
    figure, left = _new(title, panels=2)
    right = figure.add_subplot(1, 2, 2)
    ways = list(dict.fromkeys(way for outcomes in scaled.values() for way in outcomes))
    width = 0.8 / max(len(ways), 1)
    for number, way in enumerate(ways):
        places = {place: outcomes[way] for place, outcomes in enumerate(scaled.values()) if way in outcomes}
        at = [place + (number - (len(ways) - 1) / 2) * width for place in places]
        colour = COLOURS.get(way, CGDP_COLOUR)
        spreads = [outcome.spread * 1e3 for outcome in places.values()]
        left.bar(at, [outcome.seconds * 1e3 for outcome in places.values()], width, yerr=spreads, color=colour)
        right.bar(at, [outcome.peak / 2**20 for outcome in places.values()], width, color=colour, label=way)
    for axes, label in ((left, "time of an iteration (ms)"), (right, "memory of a rank (MiB)")):
        axes.set_xticks(range(len(scaled)), [str(ranks) for ranks in scaled])
        axes.set_xlabel("ranks")
        axes.set_ylabel(label)
    _save(figure, right, path)


def draw_learning(path: Path, title: str, curves: Mapping[str, Sequence[Point]]) -> None:
    """Fig. 7: accuracy of the test by the time of training (a) and by the iteration (b), a line for each way."""
    figure, left = _new(title, panels=2)
    right = figure.add_subplot(1, 2, 2)
    for axes, column in ((left, 1), (right, 0)):
        for way, points in curves.items():
            at, accuracy = [point[column] for point in points], [100 * point[2] for point in points]
            axes.plot(at, accuracy, color=COLOURS[way], linestyle=DASHES.get(way, "-"), label=way)
        axes.set_xlabel("time of training (s)" if column else "iteration")
        axes.set_ylabel("accuracy (%)")
    _save(figure, right, path)


def intervals(seconds: Sequence[float]) -> tuple[list[int], list[float]]:
    """The last iteration of each BLOCK iterations, and their time."""
    times = [sum(run) for run in runs(seconds, BLOCK)]
    return [(number + 1) * BLOCK for number in range(len(times))], times


def _new(title: str, panels: int = 1) -> tuple[Figure, Axes]:
    # An extra, and slow to import.
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=INCHES, dpi=DOTS, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot(1, panels, 1)
    axes.set_title(title, fontsize=9)
    return figure, axes


def _line(axes: Axes, way: str, outcomes: Mapping[str, Outcome]) -> None:
    if way in outcomes:
        mean = fmean(outcomes[way].blocks)
        axes.axhline(mean, color=COLOURS[way], linestyle=DASHES[way], linewidth=1.3, label=way)


def _save(figure: Figure, axes: Axes, path: Path) -> None:
    """Write the figure; the legend is that of ``axes``."""
    for each in figure.axes:
        for side in ("top", "right"):
            each.spines[side].set_visible(False)
        each.tick_params(labelsize=8)
        each.xaxis.label.set_fontsize(9)
        each.yaxis.label.set_fontsize(9)
    handles, labels = axes.get_legend_handles_labels()
    order = sorted(range(len(labels)), key=lambda number: not labels[number].startswith("CGDP"))
    axes.legend(
        [handles[number] for number in order], [labels[number] for number in order],
        fontsize=7, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5),
    )  # fmt: skip
    figure.savefig(path)
