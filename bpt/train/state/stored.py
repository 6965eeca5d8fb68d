"""Blobs in a file of any format."""

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
    """Return the message for a file of weights that should be a solver state; ``suffix`` is ".h5" or empty."""
    return f"is a file of weights, not a solver state; give the .solverstate{suffix} file, or use {from_weights()}"


def from_weights() -> str:
    """Return the flag, or the call, that starts a run from weights alone."""
    return for_caller("--weights", "solver.net.copy_from(FILE)")


class StoredBlob(ABC):
    """A blob in a file.

    Args:
        shape: its shape.
        legacy: whether it is from the time when every blob had four axes.
    """

    def __init__(self, shape: Shape, legacy: bool = False) -> None:
        self.shape = shape
        self.legacy = legacy

    def fits(self, shape: Shape) -> bool:
        """Return whether the values fit a blob of ``shape`` (Caffe: ``Blob::ShapeEquals``)."""
        return fits(self.shape, shape, self.legacy)

    @abstractmethod
    def read(self, shape: Shape, part: BlobSlice | None = None) -> FloatArray:
        """Return the values for a blob of ``shape``, which fits, or for a slice of it.

        Raises:
            FileError: the values cannot be read.
        """

    @abstractmethod
    def check(self) -> None:
        """Read and check all values.

        Raises:
            FileError: the values cannot be read, or are not all finite.
        """


def check_finite(values: FloatArray) -> None:
    """Raise a ValueError if the numbers are not all finite, because training cannot start from them."""
    infinite = values.size - int(np.isfinite(values).sum())
    if infinite:
        raise ValueError(f"{infinite} of {values.size} values are NaN or infinite; the run had diverged before")


StoredLayers = dict[str, dict[int, StoredBlob]]
"""The layers in a file of weights, by name and in order, each with its blobs by number."""


def runs_of_rows(shape: Shape, size: int) -> Iterator[tuple[int, int]]:
    """Yield runs ``[start, stop)`` of rows (axis 0) with about ``size`` elements, but at least one row."""
    row = math.prod(shape[1:])
    if row:
        rows = max(1, size // row)
        for start in range(0, shape[0], rows):
            yield start, min(shape[0], start + rows)


def shape_string(shape: Shape) -> str:
    """Return ``shape`` as Caffe prints it: ``4 2 3 3 (72)``."""
    return " ".join(map(str, (*shape, f"({count(shape)})")))
