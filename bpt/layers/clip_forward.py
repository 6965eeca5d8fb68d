"""Limits that forward keeps to and backward does not notice, as in Caffe's logarithms."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx


def clip_forward(x: Tensor, least: float) -> Tensor:
    """``max(x, least)`` with the gradient of ``x``, also below ``least``."""
    clipped: Tensor = _ClipForward.apply(x, least)  # type: ignore[no-untyped-call]
    return clipped


class _ClipForward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, least: float) -> Tensor:
        return x.clamp(min=least)

    @staticmethod
    def backward(ctx: FunctionCtx, diff: Tensor) -> tuple[Tensor, None]:
        return diff, None
