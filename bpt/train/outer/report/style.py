"""The style of figures: one size, one set of colours, bars side by side; files are written atomically."""

from __future__ import annotations

import io
import math
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from bpt.base.atomic import atomic_file, check_place
from bpt.base.errors import UsageError, UserError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


INCHES, DOTS = (5.6, 3.3), 200  # as wide as the text of a paper with one column
SMALL, MEDIUM = 8, 9  # font sizes in points
FEW = 40  # points of a curve up to which each has a mark

# These are distinct for readers with any kind of colour vision, and in grey (Okabe and Ito).
BLUE, ORANGE, GREEN, RED, PURPLE, SKY, BLACK = (
    "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#000000",
)  # fmt: skip
GREY = "#BBBBBB"
COLOURS = (BLUE, RED, GREEN, PURPLE, ORANGE, SKY, BLACK)
MARKS = ("o", "s", "^", "D", "v", "P", "X")
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1, 1)), (0, (5, 1.5, 1, 1.5)), (0, (3, 1)), "-", (0, (5, 1.5)))
HATCHES = ("", "///", "...", "\\\\\\", "xxx", "+++", "ooo")


def check_matplotlib() -> None:
    """Raise a UserError if matplotlib is missing, before a long run rather than after it."""
    try:
        import matplotlib  # noqa: F401, PLC0415  an extra, and slow to import
    except ImportError:
        raise UserError("figures need the package matplotlib: pip install 'bpt[plot]'") from None


@contextmanager
def without_glyph_warnings() -> Iterator[None]:
    """Suppress warnings about letters that the font lacks, which are drawn as boxes; also a decorator."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        yield


FIGURES = (".png", ".svg")


def check_figure(flag: str, path: str, is_optional: bool = False) -> None:
    """Check before the work that the figure of ``--flag`` can be written to ``path``.

    Args:
        is_optional: whether the command works without the figure if matplotlib is missing.

    Raises:
        UserError: matplotlib is missing.
        UsageError: the suffix of ``path`` is not that of a figure.
        FileError: no file can be written at ``path``.
    """
    if Path(path).suffix.lower() not in FIGURES:
        raise UsageError(f"--{flag} {path}: writes files that end in {' or '.join(FIGURES)}")
    if not is_optional:
        check_matplotlib()
    check_place(path)


def check_picture(path: str, formats: Sequence[str], refusal: str) -> None:
    """Check before the work that the picture can be written.

    Args:
        formats: the allowed suffixes.
        refusal: the message for another suffix.

    Raises:
        UserError: matplotlib is missing.
        UsageError: the file has another suffix.
    """
    if Path(path).suffix.lower() not in formats:
        raise UsageError(refusal)
    check_matplotlib()


def new_figure(
    title: str = "", panels: int = 1, height: float = INCHES[1], beside: bool = False
) -> tuple[Figure, list[Axes]]:
    """Return an empty figure with ``panels``, one above the other, or ``beside`` each other.

    Raises:
        UserError: matplotlib is missing.
    """
    check_matplotlib()
    # An extra, and slow to import.
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(INCHES[0], height), dpi=DOTS, layout="constrained")
    FigureCanvasAgg(figure)
    shape = (1, panels) if beside else (panels, 1)
    axes = figure.subplots(*shape, squeeze=False, sharex=not beside)
    if title:
        figure.suptitle(title, fontsize=MEDIUM, parse_math=False)  # a $ is a $
    return figure, list(axes.flat)


@without_glyph_warnings()
def save(figure: Figure, path: str | os.PathLike[str]) -> Path:
    """Write ``figure`` as a PNG file or, if ``path`` ends in ``.svg``, as SVG.

    Raises:
        WriteError: it could not be written.
    """
    for axes in figure.axes:
        _tidy(axes)
    content = io.BytesIO()
    figure.savefig(content, format="svg" if Path(path).suffix.lower() == ".svg" else "png")
    with atomic_file(path) as file:
        file.write(content.getvalue())
    return Path(path)


def legend(figure: Figure, axes: Axes) -> None:
    """Add a legend of the colours in ``axes`` below the panels, unless there is only one colour."""
    handles, labels = axes.get_legend_handles_labels()
    if len(labels) > 1:
        figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=SMALL, frameon=False)


def line(axes: Axes, number: int, x: Sequence[float], y: Sequence[float], label: str) -> None:
    """Draw the ``number``-th of several curves with its own colour, dash and mark."""
    mark = MARKS[number % len(MARKS)] if len(x) <= FEW else ""
    axes.plot(
        x, y, color=COLOURS[number % len(COLOURS)], linestyle=DASHES[number % len(DASHES)], marker=mark, markersize=4,
        linewidth=1.4, label=label,
    )  # fmt: skip


def whole_ticks(axes: Axes, x: bool = True) -> None:
    """Set ticks at whole numbers only, unless the axis is too short for two of them."""
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415  see new_figure

    (axes.xaxis if x else axes.yaxis).set_major_locator(MaxNLocator(integer=True))


def shown(value: float) -> str:
    """Return a number as text above a bar, with three digits."""
    if math.isnan(value):
        return ""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _tidy(axes: Axes) -> None:
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.tick_params(labelsize=SMALL)
    axes.xaxis.label.set_fontsize(MEDIUM)
    axes.yaxis.label.set_fontsize(MEDIUM)
    axes.title.set_fontsize(MEDIUM)


NUMBERED = 24  # bars up to which each has a number
NEVER = "–"  # over the place of a bar that is missing, as in the paper's Table 1


def bars(axes: Axes, values: Mapping[str, Sequence[float]]) -> None:
    """Draw a bar for each name: the mean of its values, and whiskers from the least to the greatest."""
    for number, (name, each) in enumerate(values.items()):
        _bar(axes, number, 0.65, each, number, name)
    axes.set_xticks(range(len(values)), list(values))
    axes.set_xlim(-0.6, len(values) - 0.4)
    _room_above(axes)


def grouped_bars(axes: Axes, groups: Sequence[str], values: Mapping[str, Sequence[Sequence[float | None]]]) -> None:
    """Draw a bar for each name in each group; ``values[name][group]`` are the runs, ``None`` if it was not reached.

    A bar needs a value from every run.
    """
    width = 0.8 / max(len(values), 1)
    points = SMALL - 1 if len(groups) * len(values) <= NUMBERED / 2 else SMALL - 2
    if len(groups) * len(values) > NUMBERED:
        points = 0
    for number, (name, of_groups) in enumerate(values.items()):
        for group, each in enumerate(of_groups):
            place = group + (number - (len(values) - 1) / 2) * width
            known = [value for value in each if value is not None]
            if known and len(known) == len(each):
                _bar(axes, place, width * 0.9, known, number, name if not group else "", points)
            else:
                axes.annotate(NEVER, (place, 0), ha="center", va="bottom")
                if not group:
                    axes.bar([place], [0], color=COLOURS[number % len(COLOURS)], label=name)
    axes.set_xticks(range(len(groups)), list(groups))
    axes.set_xlim(-0.6, len(groups) - 0.4)
    _room_above(axes)


def _bar(
    axes: Axes, place: float, width: float, values: Sequence[float], number: int, label: str, points: int = SMALL - 1
) -> None:
    """Draw a bar; ``points`` is the font size of the number above it, 0 for none."""
    mean = fmean(values)
    axes.bar(
        [place], [mean], width, color=COLOURS[number % len(COLOURS)], hatch=HATCHES[number % len(HATCHES)],
        edgecolor="white", linewidth=0.5, label=label,
    )  # fmt: skip
    if len(values) > 1:
        axes.errorbar(
            [place], [mean], [[mean - min(values)], [max(values) - mean]], color="black", capsize=2.5, linewidth=1
        )
    if not points:
        return
    axes.annotate(
        shown(mean), (place, max(values)), xytext=(0, 2), textcoords="offset points", ha="center", va="bottom",
        fontsize=points,
    )  # fmt: skip


def _room_above(axes: Axes) -> None:
    """Extend the axis for the numbers over the bars."""
    axes.set_ylim(0, axes.get_ylim()[1] * 1.06)
