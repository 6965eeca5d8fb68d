"""Normalising and scaling by channel for blobs in channels-last layout, exact to a few units in the last place.

torch's own kernels add up one row of channels after the other in that layout, which leaves errors of 1e-5
where its contiguous kernels leave 3e-7; ``Tensor.sum`` adds pairwise. Rows are read several at a time, so that
few channels fill the vector units, too.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

WIDTH = 256  # elements that a row should have at least


def is_channels_last(x: Tensor) -> bool:
    """Whether ``x`` is a float32 image blob on the CPU whose channels lie side by side in memory."""
    dense = x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()
    return dense and x.device.type == "cpu" and x.dtype == torch.float32 and not torch.compiler.is_compiling()


class _Rows:
    """``(N, C, H, W)`` blobs of one shape as rows of ``repeat · C`` elements."""

    def __init__(self, like: Tensor) -> None:
        self.channels = like.shape[1]
        self.count = like.numel() // self.channels  # elements a channel
        self.repeat = 1
        while self.repeat * self.channels < WIDTH and self.count % (2 * self.repeat) == 0:
            self.repeat *= 2

    def of(self, x: Tensor) -> Tensor:
        rows = x.contiguous(memory_format=torch.channels_last).permute(0, 2, 3, 1)
        return rows.reshape(-1, self.repeat * self.channels)

    def sum(self, rows: Tensor) -> Tensor:
        """Sum by channel."""
        return rows.sum(0).view(self.repeat, self.channels).sum(0)

    def spread(self, by_channel: Tensor) -> Tensor:
        return by_channel.repeat(self.repeat)


def normalise(x: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """``(x - mean) / sqrt(variance + eps)`` by channel, the batch's mean and its biased variance.

    The latter two carry no gradient.
    """
    return _Normalise.apply(x, eps)  # type: ignore[no-untyped-call,no-any-return]


class _Normalise(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
        rows = _Rows(x)
        values = rows.of(x)
        mean = rows.sum(values) / rows.count
        top = torch.empty_like(x)
        y = rows.of(top)  # a view
        torch.sub(values, rows.spread(mean), out=y)
        variance = rows.sum(y * y) / rows.count
        inverse = torch.rsqrt(variance + eps)
        y.mul_(rows.spread(inverse))
        # The top, not the bottom: a Scale behind it keeps the top as well.
        ctx.save_for_backward(top, inverse)
        ctx.mark_non_differentiable(mean, variance)
        return top, mean, variance

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, d_top: Tensor, *_: Tensor) -> tuple[Tensor, None]:
        top, inverse = ctx.saved_tensors  # type: ignore[attr-defined]
        rows = _Rows(top)
        dy, y = rows.of(d_top), rows.of(top)
        bottom = torch.empty_like(top)
        dx = rows.of(bottom)
        torch.mul(dy, y, out=dx)
        along = rows.sum(dx) / rows.count
        torch.addcmul(dy, y, rows.spread(-along), out=dx)
        dx.sub_(rows.spread(rows.sum(dy) / rows.count)).mul_(rows.spread(inverse))
        return bottom, None


def scale(x: Tensor, factors: Tensor, summands: Tensor) -> Tensor:
    """``factors · x + summands`` by channel."""
    return _Scale.apply(x, factors, summands)  # type: ignore[no-untyped-call,no-any-return]


class _Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, factors: Tensor, summands: Tensor) -> Tensor:
        rows = _Rows(x)
        top = torch.empty_like(x)
        torch.addcmul(rows.spread(summands), rows.of(x), rows.spread(factors), out=rows.of(top))
        ctx.save_for_backward(x, factors)
        return top

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, d_top: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, factors = ctx.saved_tensors  # type: ignore[attr-defined]
        rows = _Rows(x)
        dy = rows.of(d_top)
        bottom = torch.empty_like(x)
        dx = rows.of(bottom)
        torch.mul(dy, rows.of(x), out=dx)
        d_factors = rows.sum(dx)
        torch.mul(dy, rows.spread(factors), out=dx)
        return bottom, d_factors, rows.sum(dy)
