"""Indices that arrive as floats and choose rows of a table or of a blob."""

from __future__ import annotations

import torch
from torch import Tensor

from bpt.errors import DataError
from bpt.graph.spec import LayerSpec


def row_indices(spec: LayerSpec, indices: Tensor, bottom: int, rows: int, table: str) -> Tensor:
    """``indices`` as int64, truncated as in Caffe, in their shape.

    They are checked by one look at the least and the greatest (on a GPU, the host waits for these two). Of an
    exported graph, which cannot branch on data, torch refuses them.

    Args:
        bottom: which bottom they are.
        rows: how many rows there are.
        table: what has these rows, for the message: ``'the samples of "x"'``.

    Raises:
        DataError: an index is outside [0, ``rows``).
    """
    whole = indices.long()
    if not torch.compiler.is_compiling() and not is_traced() and whole.numel():
        low, high = torch.stack(whole.aminmax()).tolist()
        if low < 0 or high >= rows:
            place = int(((whole < 0) | (whole >= rows)).flatten().nonzero()[0])
            raise DataError(
                f'layer "{spec.name}": index {indices.flatten()[place].item():g} at position {place} of '
                f'"{spec.bottom_names[bottom]}" is outside [0, {rows}), {table}'
            )
    return whole


def is_traced() -> bool:
    """Whether ``torch.jit.trace`` is writing down what happens, which it does for one input only."""
    return bool(torch.jit.is_tracing())  # type: ignore[attr-defined, no-untyped-call]
