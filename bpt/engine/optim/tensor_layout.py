"""Layouts of tensors in memory, for element-wise arithmetic."""

from __future__ import annotations

import torch
from torch import Tensor


def is_dense(tensor: Tensor) -> bool:
    """Return whether the elements of ``tensor`` fill one run of memory without gaps, in whatever order of axes."""
    expected = 1
    for stride, extent in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if extent == 1:
            continue
        if stride != expected:
            return False
        expected *= extent
    return True


def same_layout(a: Tensor, b: Tensor) -> bool:
    """Return whether tensors of one shape lie on one device with their axes in the same order of memory."""
    if a.device != b.device:
        return False
    if a.stride() == b.stride():
        return True
    return all(x == y for x, y, extent in zip(a.stride(), b.stride(), a.shape, strict=True) if extent != 1)


def laid_out_like(tensor: Tensor, model: Tensor) -> Tensor:
    """Return ``tensor`` in the layout of ``model``, which has the same shape; itself if it has that layout."""
    return tensor if same_layout(tensor, model) else torch.empty_like(model).copy_(tensor)


def flat(tensor: Tensor) -> Tensor:
    """Return all elements as one axis in their order of memory: a view, or a copy if there are gaps."""
    if is_dense(tensor):
        return tensor.as_strided((tensor.numel(),), (1,), tensor.storage_offset())
    return tensor.reshape(-1)


def split(tensor: Tensor, size: int) -> tuple[Tensor, ...]:
    """Return ``tensor`` in runs of at most ``size`` elements; whole on a GPU."""
    if tensor.device.type != "cpu" or tensor.numel() <= size:
        return (tensor,)
    return torch.split(flat(tensor), size)
