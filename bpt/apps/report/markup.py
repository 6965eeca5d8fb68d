"""Parts of a page: tables, and pictures that the page contains."""

from __future__ import annotations

import base64
import io
import tempfile
from collections.abc import Callable, Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


def table(head: Sequence[object], rows: Sequence[Sequence[object]], is_headed: bool = False) -> Iterator[str]:
    """Yield the lines of a table of texts.

    Args:
        head: the headings of the columns.
        rows: the texts of the rows.
        is_headed: whether the first text of each row is a heading; long texts are then broken, so that all columns fit.
    """
    yield (
        f"<table{' class=headed' * is_headed}>\n<tr>"
        + "".join(f"<th>{escape(str(each))}</th>" for each in head)
        + "</tr>"
    )
    for row in rows:
        cells = [f"<td>{escape(str(each))}</td>" for each in row]
        if is_headed:
            cells[0] = f"<th>{escape(str(row[0]))}</th>"
        yield f"<tr>{''.join(cells)}</tr>"
    yield "</table>"


def key(sample: str, words: str) -> str:
    """Return an entry of a legend: a sample of a line or a colour, 48 × 8, and what it stands for."""
    return f'<span class="key"><svg viewBox="0 0 48 8" aria-hidden="true">{sample}</svg> {escape(words)}</span>'


def drawing(draw: Callable[[str], object]) -> str:
    """Return a drawing as an element that may scroll.

    Args:
        draw: writes the drawing to the SVG file of this path.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "drawing.svg"
        draw(str(path))
        svg = path.read_text(encoding="utf-8")
    return f'<div class="drawing">\n{svg[svg.index("<svg") :]}</div>'


def picture(pixels: NDArray[np.uint8], words: str) -> str:
    """Return an image element that contains its file.

    Args:
        pixels: (rows, columns, 3) red, green and blue.
        words: the text for readers who do not see the picture.
    """
    from matplotlib.image import imsave  # noqa: PLC0415  an extra, and slow to import

    file = io.BytesIO()
    imsave(file, pixels, format="png")
    code = base64.b64encode(file.getvalue()).decode()
    return f'<img src="data:image/png;base64,{code}" alt="{escape(words)}">'


def as_pixels(sample: NDArray[Any]) -> NDArray[np.uint8]:
    """Return an input of a net, (channels, rows, columns) with 1 or 3 channels in Caffe's order, as a picture.

    The lowest value becomes black and the highest white, since the net's mean and scale are in the values.
    """
    low, high = float(sample.min()), float(sample.max())
    shades = (sample - low) / (high - low) if high > low else np.zeros(sample.shape)
    rgb = np.repeat(shades, 3, 0) if len(sample) == 1 else shades[::-1]
    pixels: NDArray[np.uint8] = np.round(255 * np.moveaxis(rgb, 0, -1)).astype(np.uint8)
    return pixels


def overlay(pixels: NDArray[np.uint8], heat: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Return a picture under a heat map (rows, columns) from 0 to 1; the larger the heat, the more it hides."""
    from matplotlib import colormaps  # noqa: PLC0415  an extra, and slow to import

    hot = 255 * np.asarray(colormaps["inferno"](heat))[..., :3]
    weight = 0.7 * heat[..., None]
    mixed: NDArray[np.uint8] = np.round(pixels * (1 - weight) + hot * weight).astype(np.uint8)
    return mixed
