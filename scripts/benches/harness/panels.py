"""Figures of several panels, as PNG files."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, HEIGHT, DOTS = 7.2, 3.2, 160  # inches of a figure and of a row, dots an inch


def check_matplotlib() -> None:
    """End the program if there is no matplotlib; better before than after the measurement."""
    try:
        import matplotlib  # noqa: F401, PLC0415  an extra, and slow to import
    except ImportError:
        sys.exit("the figures need matplotlib: pip install 'bpt[plot]'")


def new_panels(title: str, columns: int, rows: int = 1) -> tuple[Figure, list[Axes]]:
    """A figure and its panels, row by row."""
    # An extra, and slow to import.
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(WIDTH, HEIGHT * rows), dpi=DOTS, layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title, fontsize=9)
    return figure, [figure.add_subplot(rows, columns, number + 1) for number in range(rows * columns)]


def save_panels(figure: Figure, all_axes: Sequence[Axes], path: Path) -> None:
    """Write the figure, with the last panel's legend at its side."""
    for axes in all_axes:
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        axes.tick_params(labelsize=8)
        axes.xaxis.label.set_fontsize(8)
        axes.yaxis.label.set_fontsize(8)
    all_axes[-1].legend(fontsize=7, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    figure.savefig(path)
