"""The messages of split layers' blobs, which both schemes share."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from bpt.config.precision import array_of

Bounds = Sequence[tuple[int, int]]  # of each shard's slice of the features


def message(blob: Tensor) -> NDArray[Any]:
    """Return the elements of ``blob`` in their logical order, whatever its layout, on the host.

    A copy only if need be.
    """
    return array_of(blob.detach().contiguous().cpu()).reshape(-1)


def room(elements: int, dtype: torch.dtype) -> Tensor:
    """Return host memory to receive so many elements."""
    return torch.empty(elements, dtype=dtype)


def pack_columns(blob: Tensor, bounds: Bounds) -> Tensor:
    """Return ``blob`` (rows, features) as one flat tensor, slice by slice of its features."""
    rows = blob.shape[0]
    if (0, blob.shape[1]) in bounds:
        return blob.reshape(-1)
    flat = blob.new_empty(blob.numel())
    for start, stop in bounds:
        flat[rows * start : rows * stop].view(rows, stop - start).copy_(blob[:, start:stop])
    return flat


def unpack_columns(flat: Tensor, rows: int, bounds: Bounds) -> Tensor:
    """Return the inverse of ``pack_columns``."""
    slices = [flat[rows * start : rows * stop].view(rows, stop - start) for start, stop in bounds if stop > start]
    return slices[0] if len(slices) == 1 else torch.cat(slices, 1)


def sizes(rows: int, bounds: Bounds) -> list[int]:
    """Return the elements of each slice of a blob with so many rows."""
    return [rows * (stop - start) for start, stop in bounds]


def pieces_of(blob: Tensor, rows: Sequence[int]) -> list[Tensor]:
    """Return the pieces of a blob with so many rows each."""
    return [blob[start:stop] for start, stop in pairwise(accumulate(rows, initial=0))]


def joined(pieces: Sequence[Tensor]) -> Tensor:
    """Return the rows of all pieces of a batch, in order; a copy only if there are several."""
    return pieces[0] if len(pieces) == 1 else torch.cat(list(pieces))
