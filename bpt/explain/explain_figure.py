"""The picture of an explanation: planes of a scan, or an image, with the heat map over them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bpt.report.outer.style import MEDIUM, SKY, new_figure, save

COLOURS = "inferno"
STRONGEST = 0.7  # how much of what lies below the map hides where it is 1
SEVERAL, ONE = (8.8, 3.2), (5.6, 4.6)  # inches of several panels beside each other, and of one


@dataclass(frozen=True)
class Panel:
    """A plane.

    Attributes:
        title: over the plane.
        back: what lies below the map: (rows, columns) in grey, or (rows, columns, 3) with red, green and blue.
        heat: (rows, columns), from 0 to 1.
        extent: what the left, right, bottom and top edge are called.
        labels: of the horizontal and the vertical axis.
        mark: where the map is largest, in the axes' units.
        grey: what is black and what is white; ``None``: the lowest and the highest of ``back``.
        origin: whether row 0 is the "upper" or the "lower" one.
    """

    title: str
    back: NDArray[Any]
    heat: NDArray[np.float32]
    extent: tuple[float, float, float, float]
    labels: tuple[str, str]
    mark: tuple[float, float]
    grey: tuple[float, float] | None = None
    origin: Literal["upper", "lower"] = "lower"


def draw(path: str | os.PathLike[str], title: str, panels: Sequence[Panel]) -> None:
    """Write a PNG file with the panels beside each other.

    The stronger the map, the less of what lies below is seen; where it is 0, all of it.

    Raises:
        UserError: there is no matplotlib.
        WriteError: the file could not be written.
    """
    figure, places = new_figure(title, len(panels), beside=True)
    figure.set_size_inches(SEVERAL if len(panels) > 1 else ONE)
    for axes, panel in zip(places, panels, strict=True):
        low, high = panel.grey or (None, None)
        axes.imshow(
            panel.back, cmap="gray", vmin=low, vmax=high, extent=panel.extent, origin=panel.origin,
            interpolation="nearest",
        )  # fmt: skip
        shown = axes.imshow(
            panel.heat, cmap=COLOURS, vmin=0, vmax=1, alpha=STRONGEST * panel.heat, extent=panel.extent,
            origin=panel.origin, interpolation="nearest",
        )  # fmt: skip
        axes.axvline(panel.mark[0], color=SKY, linewidth=0.6, linestyle=":")
        axes.axhline(panel.mark[1], color=SKY, linewidth=0.6, linestyle=":")
        axes.set_title(panel.title)
        axes.set_xlabel(panel.labels[0])
        axes.set_ylabel(panel.labels[1])
    from matplotlib.cm import ScalarMappable  # noqa: PLC0415  an extra, and slow to import

    bar = figure.colorbar(ScalarMappable(shown.norm, shown.cmap), ax=places, shrink=0.8, pad=0.02)
    bar.set_label("heat", fontsize=MEDIUM)
    save(figure, path)
