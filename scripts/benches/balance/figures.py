"""The figures of ``scripts/bench balance``, after Fig. 2 to 9 of the paper, as PNG files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from bpt.parallel.balance.profile import Profile
from scripts.benches.balance.results import SIDES, Compared, Repeated
from scripts.benches.harness.panels import new_panels, save_panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Distinct for readers with any kind of colour vision, and in grey (Okabe and Ito).
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")
MARKS = "os^vD*xP"


def draw_times(path: Path, title: str, results: Sequence[Compared]) -> None:
    """Fig. 2, 4 and 6: computation (left) and communication (right) of each rank by batch, equal shares above."""
    figure, all_axes = new_panels(title, 2, 2)
    batches = [result.batch for result in results]
    highest = 0.0
    for number, side in enumerate(SIDES):
        for column, what in enumerate(("computing", "waiting")):
            axes = all_axes[2 * number + column]
            times = [
                [seconds * result.iterations for seconds in getattr(result.sides[side], what)] for result in results
            ]
            for rank, (name, seconds) in enumerate(zip(results[0].ranks, zip(*times, strict=True), strict=True)):
                axes.plot(batches, seconds, **_style(rank), label=f"{rank} ({name})", markersize=4, linewidth=1)
                highest = max(highest, *seconds)
            word = "computation" if what == "computing" else "communication"
            axes.set_title(f"{word}, {side}", fontsize=8)
            axes.set_ylabel("s of an epoch")
            _by_batch(axes, batches)
    for axes in all_axes:
        axes.set_ylim(0, 1.05 * highest)
    save_panels(figure, all_axes, path)


def draw_speeds(path: Path, title: str, names: Sequence[str], profile: Profile) -> None:
    """Fig. 3: the speed of each rank by the size of its batch."""
    figure, (axes,) = new_panels(title, 1)
    for rank, (name, speed) in enumerate(zip(names, profile.speeds, strict=True)):
        sizes = sorted(speed.points)
        speeds = [size / speed.points[size].seconds for size in sizes]
        axes.plot(sizes, speeds, **_style(rank), label=f"{rank} ({name})", markersize=4, linewidth=1)
    axes.set_xscale("log", base=2)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("samples")
    axes.set_ylabel("samples a second")
    save_panels(figure, [axes], path)


def draw_epochs(path: Path, title: str, results: Sequence[Compared]) -> None:
    """Fig. 5 and 7: time of an epoch by batch, with equal and with balanced shares, a panel a network."""
    nets = list(dict.fromkeys(result.net for result in results))
    figure, all_axes = new_panels(title, min(len(nets), 3), -(-len(nets) // 3))
    for net, axes in zip(nets, all_axes, strict=False):
        chosen = [result for result in results if result.net == net]
        batches = [result.batch for result in chosen]
        for number, side in enumerate(SIDES):
            seconds = [result.sides[side].seconds * result.iterations for result in chosen]
            axes.plot(batches, seconds, **_style(number), label=side, markersize=4)
        best = [result.ideals["in training"][1] * result.iterations for result in chosen]
        axes.plot(batches, best, color="#000000", linestyle=":", marker="_", label="ideal")
        axes.set_title(net, fontsize=8)
        axes.set_ylabel("s of an epoch")
        axes.set_ylim(bottom=0)
        _by_batch(axes, batches)
    save_panels(figure, all_axes[: len(nets)], path)


def draw_accuracy(path: Path, title: str, samples: int, batch: int, curves: Repeated) -> None:
    """Fig. 8 and 9: accuracy by epoch (left) and by time (right); from the lowest to the highest repetition in grey."""
    figure, (by_epoch, by_time) = new_panels(title, 2)
    for number, (side, repetitions) in enumerate(curves.items()):
        together = list(zip(*repetitions, strict=True))
        epochs = [points[0][0] * batch / samples for points in together]
        seconds = [fmean(point[1] for point in points) for points in together]
        scores = [[100 * point[2] for point in points] for points in together]
        for axes, at in ((by_epoch, epochs), (by_time, seconds)):
            axes.plot(at, [fmean(score) for score in scores], **_style(number), label=side, markersize=4, linewidth=1)
            axes.fill_between(at, [*map(min, scores)], [*map(max, scores)], color=COLOURS[number], alpha=0.15)
    by_epoch.set_xlabel("epoch")
    by_time.set_xlabel("time of training (s)")
    by_epoch.set_ylabel("accuracy (%)")
    save_panels(figure, [by_epoch, by_time], path)


def _style(number: int) -> dict[str, Any]:
    return {"color": COLOURS[number % len(COLOURS)], "marker": MARKS[number % len(MARKS)]}


def _by_batch(axes: Axes, batches: Sequence[int]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(batches, [str(batch) for batch in batches])
    axes.minorticks_off()
    axes.set_xlabel("batch |B|")
