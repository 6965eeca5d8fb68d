"""The picture of ``bpt time --roofline``: all layers under the roofs, and the layers with most time above them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bpt.perf.timing.peaks import Peaks
from bpt.perf.timing.roofline import Direction, Point
from bpt.train.outer.report.style import BLACK, BLUE, GREY, ORANGE, RED, SMALL, new_figure, save, without_glyph_warnings

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDE = (9.5, 4.4)  # inches
COLOURS = {Direction.FORWARD: BLUE, Direction.BACKWARD: RED}
MARKS = {Direction.FORWARD: "o", Direction.BACKWARD: "s"}
BARS = 14
APART = 0.15  # least distance of the marks' numbers, in decades
LARGEST = 160.0  # area of the largest mark in square points
ROOM = 2.0  # factor by which axes extend beyond the outermost points


@without_glyph_warnings()
def draw_roofline(points: Sequence[Point], peaks: Peaks, title: str, path: str) -> Path:
    """Write the picture of ``points``, which are in the order of their time above the roof.

    The left panel shows FLOP/s over FLOP/byte, both logarithmic, with the roofs. The area of a mark is the time above
    the roof. Layers that only move numbers are not in this panel. The right panel shows the times of the first layers,
    up to the roof and above it, with the numbers of their marks.

    Raises:
        UserError: matplotlib is missing.
        WriteError: the file could not be written.
    """
    figure, (plane, bars) = new_figure(title, 2, WIDE[1], beside=True)
    figure.set_size_inches(*WIDE)
    _draw_plane(plane, points, peaks)
    _draw_bars(bars, points[:BARS])
    return save(figure, path)


def _draw_plane(axes: Axes, points: Sequence[Point], peaks: Peaks) -> None:
    shown = [point for point in points if point.work.flops and point.work.bytes and point.seconds]
    areas = _areas(shown)
    for direction in Direction:
        own = [point for point in shown if point.direction is direction]
        if own:
            axes.scatter(
                [point.work.intensity for point in own], [_rate(point) for point in own],
                s=[areas[id(point)] for point in own],
                color=COLOURS[direction], marker=MARKS[direction], alpha=0.6, linewidths=0, label=direction.value,
            )  # fmt: skip
    _number(axes, points, areas)
    intensities = [*(point.work.intensity for point in shown), peaks.ridge]
    left, right = min(intensities) / ROOM, max(intensities) * ROOM
    corners = [left, min(max(peaks.ridge, left), right), right]
    roof = [min(peaks.flops, x * peaks.bandwidth) / 1e9 for x in corners]
    label = f"roofs: {peaks.flops / 1e9:,.1f} GFLOP/s, {peaks.bandwidth / 1e9:,.1f} GB/s"
    axes.plot(corners, roof, color=BLACK, linewidth=1.4, label=label)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(left, right)
    axes.set_xlabel("arithmetic intensity, FLOP/byte")
    axes.set_ylabel("GFLOP/s")
    axes.grid(color=GREY, alpha=0.35, linewidth=0.5)
    axes.legend(fontsize=SMALL, frameon=False, loc="best", markerscale=0.7)


def _areas(points: Sequence[Point]) -> dict[int, float]:
    """Return the area of each point's mark in square points, by the point's id."""
    most = max([point.above for point in points if point.above > 0], default=1.0)
    return {id(point): 8 + LARGEST * max(point.above, 0.0) / most for point in points}


def _number(axes: Axes, points: Sequence[Point], areas: Mapping[int, float]) -> None:
    """Write the numbers of the bars beside the marks of the first points.

    Those of forward passes are on the left and those of backward passes on the right, because both passes of a layer
    are often near each other. Of overlapping points of a direction, only the first has a number.
    """
    numbered: dict[Direction, list[tuple[float, float]]] = {direction: [] for direction in Direction}
    for number, point in enumerate(points[:BARS], 1):
        if id(point) not in areas:
            continue
        x, y = math.log10(point.work.intensity), math.log10(_rate(point))
        others = numbered[point.direction]
        if all(abs(x - other) + abs(y - above) > APART for other, above in others):
            others.append((x, y))
            side = -1 if point.direction is Direction.FORWARD else 1
            axes.annotate(
                str(number), (10**x, 10**y), xytext=(side * (math.sqrt(areas[id(point)]) / 2 + 1), 0),
                textcoords="offset points", ha="right" if side < 0 else "left", va="center", fontsize=SMALL - 1,
            )  # fmt: skip


def _draw_bars(axes: Axes, points: Sequence[Point]) -> None:
    places = range(len(points))
    least = [point.least * 1e3 for point in points]
    above = [max(point.above, 0.0) * 1e3 for point in points]
    axes.barh(places, least, color=GREY, label="at the roof")
    axes.barh(places, above, left=least, color=ORANGE, label="above it")
    names = [f"{point.node.name} {point.direction.value}  {number}" for number, point in enumerate(points, 1)]
    axes.set_yticks(places, names, parse_math=False)
    axes.invert_yaxis()
    axes.set_xlabel("ms")
    axes.legend(fontsize=SMALL, frameon=False, loc="lower right")


def _rate(point: Point) -> float:
    """Return the rate of a point in GFLOP/s."""
    return point.work.flops / point.seconds / 1e9
