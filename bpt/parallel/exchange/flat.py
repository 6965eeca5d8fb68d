"""Several tensors as one flat tensor, and back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor


def flatten(tensors: Iterable[Tensor]) -> Tensor:
    """Return all elements in one row, in new memory."""
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def unflatten(row: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """Return the parts of ``row`` in the shapes of ``like``; they share its memory."""
    parts = torch.split(row, [tensor.numel() for tensor in like])
    return [part.view(tensor.shape) for part, tensor in zip(parts, like, strict=True)]
