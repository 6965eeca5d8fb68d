"""Batch normalisation over a batch that is divided among ranks, evenly or not: exact, with two sums over the ranks.

*Forward.* Each rank takes the moments of its own ``n`` elements of a channel: their mean, and ``M2 = Σ (x - mean)²``.
The ranks sum, in float64, ``n``, ``n · mean`` and ``M2 + n · mean²``, which is ``Σ x²``. So the mean of all is ``m = Σ
n · mean / N``, and their variance ``Σ (M2 + n · mean²) / N - m²``. The difference cancels digits where ``mean² ≫
variance``. Of float64's 53 bits it loses twice those by which the mean exceeds the deviation. A float32 element itself
has lost those bits once, of 24, so the result is always more exact than the data.

*Backward.* With ``y = (x - m) / s``: ``dx = (dy - Σ dy / N - y · Σ (dy · y) / N) / s``, both sums over all ranks.

A rank without elements adds zeros and takes part in both sums. Otherwise the others would wait for it forever.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

Total = Callable[[Tensor], Tensor]


def normalise_over_ranks(x: Tensor, eps: float, total: Total) -> tuple[Tensor, Tensor, Tensor, int]:
    """Return ``(x - mean) / sqrt(variance + eps)`` by channel, with mean and biased variance of all ranks' elements.

    Args:
        x: ``(N, channels, …)``, the samples of this rank, perhaps none.
        eps: the number that is added to the variance.
        total: sums a float64 tensor over the ranks. It is called once in forward and once in backward.

    Returns:
        The top; mean and unbiased variance of all ranks (0 of a single element), without gradient; and the number of
        elements of a channel on all ranks. If that is 0, mean and variance are 0.
    """
    channels = x.shape[1]
    sums = total(_moments(x.detach()))
    count = round(sums[0].item())
    mean, squares = sums[1:].view(2, channels) / max(count, 1)
    variance = (squares - mean * mean).clamp_(min=0)
    top: Tensor = _Normalise.apply(x, mean, torch.rsqrt(variance + eps), count, total)  # type: ignore[no-untyped-call]
    unbiased = variance * (count / max(count - 1, 1))
    return top, mean.to(x.dtype), unbiased.to(x.dtype), count


def _moments(x: Tensor) -> Tensor:
    """Return in float64 the number of elements of a channel, then for each channel their sum and the sum of squares."""
    elements = x.numel() // max(x.shape[1], 1)
    # Deviations from a rounded mean keep their digits; then the error of the rounding is corrected.
    near = _sum(x) / max(elements, 1)
    deviations = x - _spread(near, x)
    rest = _sum(deviations).double() / max(elements, 1)
    squares = _sum(deviations.square_()).double() - elements * rest * rest
    mean = near.double() + rest
    return torch.cat([mean.new_full((1,), elements), elements * mean, squares + elements * mean * mean])


class _Normalise(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, mean: Tensor, inverse: Tensor, count: int, total: Total) -> Tensor:
        near, factor = mean.to(x.dtype), inverse.to(x.dtype)
        rest = ((near - mean) * inverse).to(x.dtype)  # the rounding error of the mean
        top = (x - _spread(near, x)).mul_(_spread(factor, x)).add_(_spread(rest, x))
        ctx.save_for_backward(top, factor)
        ctx.count, ctx.total = count, total
        return top

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_top: Tensor) -> tuple[Tensor | None, ...]:
        top, factor = ctx.saved_tensors
        sums = ctx.total(torch.cat([_sum(d_top), _sum(d_top * top)]).double())
        level, along = (sums / max(ctx.count, 1)).to(top.dtype).view(2, -1)
        bottom = torch.addcmul(d_top, top, _spread(along, top), value=-1)
        return bottom.sub_(_spread(level, top)).mul_(_spread(factor, top)), None, None, None, None


def _sum(x: Tensor) -> Tensor:
    """Return the sum over each channel."""
    return x.sum([axis for axis in range(x.dim()) if axis != 1])


def _spread(by_channel: Tensor, x: Tensor) -> Tensor:
    return by_channel.view(-1, *(1,) * (x.dim() - 2))
