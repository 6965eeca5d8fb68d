"""A confusion matrix as a file: a table, or a picture."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bpt.errors import UserError
from bpt.proto.atomic import atomic_file, check_place
from bpt.report.outer.style import MEDIUM, SMALL, check_matplotlib, new_figure, save

PICTURES = (".png", ".svg")
NUMBERED = 15  # classes up to which a picture shows the numbers, too
NAMED = 60  # classes up to which it names each
INCHES_A_CLASS, LEAST, MOST = 0.32, 3.4, 9.0


def check_path(path: str) -> None:
    """Raise a UserError if no confusion matrix can be written to ``path``; better before a long test than after it."""
    suffix = Path(path).suffix.lower()
    if suffix not in (".csv", *PICTURES):
        raise UserError(f'"{path}": a confusion matrix is written as .csv, {" or ".join(PICTURES)}')
    check_place(path)
    if suffix in PICTURES:
        check_matplotlib()


def write(path: str | os.PathLike[str], matrix: npt.NDArray[np.int64], names: Sequence[str]) -> None:
    """Write ``matrix`` as a CSV file or, by the suffix of ``path``, as a PNG or SVG picture.

    Args:
        matrix: (classes, classes): the labels' classes down, those they were taken for across.
        names: of the classes.

    Raises:
        WriteError: it could not be written.
    """
    if Path(path).suffix.lower() in PICTURES:
        _draw(path, matrix, names)
        return
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["label", *names])
    table.writerows([name, *row] for name, row in zip(names, matrix.tolist(), strict=True))
    with atomic_file(path) as file:
        file.write(text.getvalue().encode())


def _draw(path: str | os.PathLike[str], matrix: npt.NDArray[np.int64], names: Sequence[str]) -> None:
    """Colours are shares of a row, so that rare classes are seen as well as frequent ones."""
    classes = len(names)
    figure, (axes,) = new_figure()
    side = min(max(INCHES_A_CLASS * classes, LEAST), MOST)
    figure.set_size_inches(side + 1.4, side + 0.6)
    labels = matrix.sum(1, keepdims=True)
    shares = np.divide(matrix, labels, out=np.zeros(matrix.shape), where=labels > 0)
    image = axes.imshow(100 * shares, cmap="Blues", vmin=0, vmax=100)
    bar = figure.colorbar(image, ax=axes, fraction=0.046, pad=0.03)
    bar.set_label("% of the label's samples", fontsize=SMALL)
    bar.ax.tick_params(labelsize=SMALL)
    axes.set_xlabel("taken for")
    axes.set_ylabel("label")
    if classes <= NAMED:
        axes.set_xticks(range(classes), names, rotation=90 if max(map(len, names)) > 2 else 0, parse_math=False)
        axes.set_yticks(range(classes), names, parse_math=False)
    if classes <= NUMBERED:
        for (row, column), number in np.ndenumerate(matrix):
            if number:
                colour = "white" if shares[row, column] > 0.5 else "black"
                axes.text(column, row, str(number), ha="center", va="center", color=colour, fontsize=SMALL)
    right, counted = int(matrix.diagonal().sum()), int(matrix.sum())
    axes.set_title(f"{right} of {counted} right" + (f", {100 * right / counted:.1f} %" if counted else ""))
    axes.title.set_fontsize(MEDIUM)
    save(figure, path)
