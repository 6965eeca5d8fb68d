"""Indices that arrive as floats and choose rows of a table or of a blob."""

from __future__ import annotations

import torch
from torch import Tensor

from bpt.errors import DataError
from bpt.graph.spec import LayerSpec
from bpt.layers.tracing import is_written_down


def row_indices(spec: LayerSpec, indices: Tensor, bottom: int, rows: int, table: str) -> Tensor:
    """``indices`` as int64, truncated as in Caffe, in their shape.

    Args:
        bottom: which bottom they are.
        rows: how many rows there are.
        table: what has these rows, for the message: ``'the samples of "x"'``.

    Raises:
        DataError: an index is outside [0, ``rows``).
    """
    whole = indices.long()
    if not are_within(whole, rows):
        place = int(((whole < 0) | (whole >= rows)).flatten().nonzero()[0])
        raise DataError(
            f'layer "{spec.name}": index {indices.flatten()[place].item():g} at position {place} of '
            f'"{spec.bottom_names[bottom]}" is outside [0, {rows}), {table}'
        )
    return whole


def are_within(indices: Tensor, number: int) -> bool:
    """Whether all of these integers are in [0, ``number``).

    By one look at the least and the greatest; on a GPU, the host waits for these two. A program that is being written
    down cannot branch on data: there the answer is yes, and torch refuses others when it runs.
    """
    if is_written_down() or not indices.numel():
        return True
    low, high = torch.stack(indices.aminmax()).tolist()
    return bool(low >= 0 and high < number)
