"""Blobs as a file holds them, whatever its format."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator

import numpy as np

from bpt.base.caller import for_caller
from bpt.config.proto.blobs import FloatArray, fits
from bpt.graph.layer_spec import Shape, count
from bpt.graph.part import BlobSlice

NO_WEIGHTS = "is a solver state, not weights; these are in the .caffemodel{suffix} file of the same name"


def no_state(suffix: str) -> str:
    """Return why a file of weights is no solver state; ``suffix`` is ".h5" or nothing."""
    return f"is a file of weights, not a solver state; give the .solverstate{suffix} file, or use {from_weights()}"


def from_weights() -> str:
    """Return what starts a run from weights alone."""
    return for_caller("--weights", "solver.net.copy_from(FILE)")


class StoredBlob(ABC):
    """A blob in a file.

    Args:
        shape: its shape.
        legacy: it is from the time when every blob had four axes.
    """

    def __init__(self, shape: Shape, legacy: bool = False) -> None:
        self.shape = shape
        self.legacy = legacy

    def fits(self, shape: Shape) -> bool:
        """Return whether a blob of ``shape`` can take the values (Caffe: ``Blob::ShapeEquals``)."""
        return fits(self.shape, shape, self.legacy)

    @abstractmethod
    def read(self, shape: Shape, part: BlobSlice | None = None) -> FloatArray:
        """Return the values of a blob of ``shape``, which fits, or of a slice of it.

        Raises:
            FileError: the values cannot be read.
        """

    @abstractmethod
    def check(self) -> None:
        """Read all values once and keep none of them.

        Raises:
            FileError: the values cannot be read, or are not all finite.
        """


def check_finite(values: FloatArray) -> None:
    """Raise a ValueError if the numbers are not all finite, since nothing can be trained from them."""
    infinite = values.size - int(np.isfinite(values).sum())
    if infinite:
        raise ValueError(f"{infinite} of {values.size} values are NaN or infinite; the run had diverged before")


StoredLayers = dict[str, dict[int, StoredBlob]]
"""The layers in a file of weights by name, in order: their blobs by number."""


def runs_of_rows(shape: Shape, size: int) -> Iterator[tuple[int, int]]:
    """Yield runs ``[start, stop)`` of rows (axis 0) of about ``size`` elements, at least one row.

    None if there is nothing.
    """
    row = math.prod(shape[1:])
    if row:
        rows = max(1, size // row)
        for start in range(0, shape[0], rows):
            yield start, min(shape[0], start + rows)


def shape_string(shape: Shape) -> str:
    """Return ``shape`` as Caffe prints it: ``4 2 3 3 (72)``."""
    return " ".join(map(str, (*shape, f"({count(shape)})")))
