"""Draws curves of runs as SVG elements, in colours that colour-blind readers tell apart and with line styles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from bpt.train.outer.report import style

Points = Sequence[tuple[float, float]]
COLOURS = style.COLOURS[:6]  # without black, which a dark page hides
DASHES = ("", "8 3", "2 3", "8 3 2 3")
_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 420, 220, 70, 12, 42


def style_of(index: int) -> str:
    """Return the attributes of the line of run ``index``; 12 runs differ."""
    return f'stroke="{COLOURS[index % len(COLOURS)]}" stroke-dasharray="{DASHES[index % len(DASHES)]}"'


def round_ticks(low: float, high: float, is_whole: bool = False) -> list[float]:
    """Return 2 to 6 multiples of 1, 2 or 5 × 10^k in ``low`` to ``high``; ``low`` alone if the range is empty.

    Args:
        low, high: the ends of the axis.
        is_whole: whether only whole numbers make sense.
    """
    if not high > low:
        return [low]
    step = _step(low, high)
    step = max(step, 1.0) if is_whole else step
    return _multiples(step, math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9))


def enclosing_ticks(low: float, high: float) -> list[float]:
    """Return multiples of the step of ``round_ticks``, from the last one below ``low`` to the first one above ``high``.

    A curve then never leaves the ticks. ``low`` alone if the range is empty.
    """
    if not high > low:
        return [low]
    step = _step(low, high)
    return _multiples(step, math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9))


def _step(low: float, high: float) -> float:
    """Return the least 1, 2 or 5 × 10^k that fits at most five times between ``low`` and ``high``."""
    power = 10.0 ** math.floor(math.log10((high - low) / 5))
    return next(each * power for each in (1, 2, 5, 10, 20) if (high - low) / (each * power) <= 5 + 1e-9)


def _multiples(step: float, first: int, last: int) -> list[float]:
    return [float(f"{count * step:.12g}") for count in range(first, last + 1)]


def tick_label(value: float, ticks: Sequence[float]) -> str:
    """Return the text of a tick: all digits of a round one, 3 digits of one that stands alone."""
    return f"{value:.10g}" if len(ticks) > 1 or value == round(value) else f"{value:.3g}"


def draw_chart(
    title: str, x_label: str, curves: Sequence[tuple[int, Points]], span: tuple[float, float] | None = None
) -> str:
    """Return an SVG element with a line for each (run's index, points).

    Args:
        title, x_label: what the lines show, and against what.
        curves: the lines.
        span: the ends of the x axis, around all points; by default those of the points.
    """
    xs = [x for _, points in curves for x, _ in points]
    ys = [y for _, points in curves for _, y in points]
    heights = enclosing_ticks(min(ys), max(ys))
    x0, x1 = span or (min(xs), max(xs))
    y0, y1 = heights[0], heights[-1]
    width, height = _WIDTH - _LEFT - 15, _HEIGHT - _TOP - _BOTTOM

    def place(x: float, y: float) -> tuple[float, float]:
        right = (x - x0) / (x1 - x0) if x1 > x0 else 0.5
        up = (y - y0) / (y1 - y0) if y1 > y0 else 0.5
        return _LEFT + right * width, _TOP + (1 - up) * height

    parts = [
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(title)} against {escape(x_label)}">'
    ]
    for value in heights:
        _, y = place(x0, value)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - 15}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{tick_label(value, heights)}</text>')
    for value in (ticks := round_ticks(x0, x1, all(isinstance(x, int) for x in xs))):
        x, _ = place(value, y0)
        parts.append(f'<text x="{x:.1f}" y="{_HEIGHT - 24}" text-anchor="middle">{tick_label(value, ticks)}</text>')
    parts.append(f'<text x="{_LEFT + width / 2}" y="{_HEIGHT - 6}" text-anchor="middle">{escape(x_label)}</text>')
    for index, points in curves:
        places = [place(x, y) for x, y in points]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f'<polyline fill="none" stroke-width="2" {style_of(index)} points="{line}"/>')
        colour = COLOURS[index % len(COLOURS)]
        parts.append(f'<circle r="3" fill="{colour}" cx="{places[-1][0]:.1f}" cy="{places[-1][1]:.1f}"/>')
    return "\n".join([*parts, "</svg>"])
