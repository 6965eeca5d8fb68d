"""Passes over any number of samples, batch by batch: ``forward_all`` and ``forward_backward_all`` of pycaffe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from bpt.apps.arguments import floats
from bpt.base.errors import UserError
from bpt.caffe.core.blob import Blob
from bpt.caffe.core.mirror import Array

Names = str | Sequence[str] | None
Samples = Mapping[str, npt.ArrayLike]
Batch = dict[str, Any]


def _rows(rows: npt.ArrayLike, name: str) -> npt.NDArray[Any]:
    """Return ``rows`` as an array of numbers with at least one axis; raise a UserError if they are not numbers."""
    if isinstance(rows, np.ndarray) and rows.ndim and rows.dtype.kind in "biuf":
        return rows
    return np.atleast_1d(floats(rows, f'what is given for blob "{name}"'))


class BatchNet(Protocol):
    """The part of a Net that passes over batches need.

    Attributes:
        blobs: all blobs by name.
    """

    blobs: dict[str, Blob]

    @property
    def inputs(self) -> list[str]:
        """Names of the input blobs."""

    @property
    def outputs(self) -> list[str]:
        """Names of the output blobs."""

    def forward(
        self, blobs: Names = (), start: str | None = None, end: str | None = None, **inputs: npt.ArrayLike
    ) -> dict[str, Array]:
        """Run the net forward."""

    def backward(
        self, diffs: Names = (), start: str | None = None, end: str | None = None, **tops: npt.ArrayLike
    ) -> dict[str, Array]:
        """Run the net backward."""


class PaddedBatches:
    """Samples in batches of the net's size; the last batch is padded with zeros.

    Args:
        samples: an array for each blob, with one row for each sample, in the shape of the blob's rows.
        blobs: the net's blobs.

    Raises:
        UserError: the arrays have different numbers of rows, or a row does not have the blob's shape.
    """

    def __init__(self, samples: Samples, blobs: Mapping[str, Blob]) -> None:
        self._arrays = {name: _rows(rows, name) for name, rows in samples.items()}
        self._sizes = {}
        for name, rows in self._arrays.items():
            shape = blobs[name].shape
            if not shape or rows.shape[1:] != shape[1:]:
                raise UserError(f'blob "{name}" has rows of shape {shape[1:]}, given rows of {rows.shape[1:]}')
            self._sizes[name] = shape[0]
        counts = {name: len(rows) for name, rows in self._arrays.items()}
        if len(set(counts.values())) > 1:
            raise UserError(f"all arrays must have the same number of samples; given {counts}")
        if len(set(self._sizes.values())) > 1:
            raise UserError(f"the blobs have batches of different sizes: {self._sizes}")
        self.samples = next(iter(counts.values()), 0)

    def __iter__(self) -> Iterator[Batch]:
        size = next(iter(self._sizes.values()), 1)
        for start in range(0, self.samples, size):
            batch = {name: rows[start : start + size] for name, rows in self._arrays.items()}
            lacking = size - min(size, self.samples - start)
            yield {
                name: np.concatenate([rows, np.zeros((lacking, *rows.shape[1:]), rows.dtype)]) if lacking else rows
                for name, rows in batch.items()
            }


class GatheredRows:
    """The results of all batches, concatenated by blob."""

    def __init__(self) -> None:
        self._parts: dict[str, list[Array]] = {}

    def add(self, arrays: Mapping[str, Array]) -> None:
        for name, array in arrays.items():
            self._parts.setdefault(name, []).append(np.atleast_1d(array).copy())

    def rows(self, samples: int) -> dict[str, Array]:
        """Return the rows of the first ``samples`` samples, without the padding of the last batch."""
        return {name: np.concatenate(parts)[:samples] for name, parts in self._parts.items()}


def forward_all(net: BatchNet, blobs: Names = (), **inputs: npt.ArrayLike) -> dict[str, Array]:
    """Run the net forward on any number of samples, in batches of its size.

    Args:
        blobs: further blobs to return.
        inputs: an array for each input of the net, with a row for each sample.

    Returns:
        The outputs and ``blobs``, by name, with a row for each sample.

    Raises:
        UserError: an input is missing, or an argument is not an input.
    """
    batches = _batches(net, inputs)
    found = GatheredRows()
    for batch in batches:
        found.add(net.forward(blobs, **batch))
    return found.rows(batches.samples)


def forward_backward_all(
    net: BatchNet, blobs: Names = (), diffs: Names = (), **arrays: npt.ArrayLike
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Run the net forward and backward on any number of samples, in batches of its size.

    Args:
        blobs, diffs: further blobs whose data and diffs to return.
        arrays: the samples of each input and, for outputs, the diffs with which the backward pass begins.

    Returns:
        The data that ``forward_all`` returns, and the diffs of the inputs and of ``diffs``.
    """
    forward = _batches(net, {name: rows for name, rows in arrays.items() if name not in net.outputs})
    backward = PaddedBatches({name: rows for name, rows in arrays.items() if name in net.outputs}, net.blobs)
    data, gradients = GatheredRows(), GatheredRows()
    nothing: Batch = {}
    for batch, starts in zip_longest(forward, backward, fillvalue=nothing):
        data.add(net.forward(blobs, **batch))
        gradients.add(net.backward(diffs, **starts))
    return data.rows(forward.samples), gradients.rows(forward.samples)


def _batches(net: BatchNet, inputs: Samples) -> PaddedBatches:
    if not net.inputs or set(inputs) != set(net.inputs):
        wanted = ", ".join(net.inputs) or "none, for its layers read data: call forward()"
        raise UserError(f"the net's inputs are {wanted}; given {', '.join(inputs) or 'none'}")
    return PaddedBatches(inputs, net.blobs)
