"""Translate a stable sort to ONNX: TopK of all elements, which orders equal elements by their indices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Table = dict[Callable[..., Any], Callable[..., Any]]


def translations() -> Table:
    """Return the translation of a stable sort, which torch's exporter lacks."""
    import onnxscript  # noqa: PLC0415  an extra

    op: Any = onnxscript.opset18

    def sort(values: Any, stable: Any = None, dim: int = -1, descending: bool = False) -> Any:
        axis = dim % max(len(values.shape), 1)
        length = op.Slice(op.Shape(values), *(op.Constant(value_ints=[number]) for number in (axis, axis + 1, 0)))
        return op.TopK(values, length, axis=axis, largest=int(descending), sorted=1)

    return {torch.ops.aten.sort.stable: sort}
