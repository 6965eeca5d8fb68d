"""Normalising and scaling by channel on a CPU, with less memory or more exactly than torch does.

*Memory*: torch keeps what it normalised for its backward pass, and the Scale behind it keeps the result. Here
both keep the result, so that a pair of BatchNorm and Scale costs as much as torch's single BatchNorm2d.

*Exactness*: in channels-last layout torch adds up one row of channels after the other, which leaves errors of
1e-5 where its contiguous kernels leave 3e-7; ``Tensor.sum`` adds pairwise. Rows are read several at a time, so
that few channels fill the vector units, too.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from bpt.kernels.channels_last import channels_last, is_channels_last, places

WIDTH = 256  # elements that a row should have at least


def applies(x: Tensor) -> bool:
    """Whether this file's functions are for ``x``."""
    return x.device.type == "cpu" and x.dtype == torch.float32 and not torch.compiler.is_compiling()


class _Rows:
    """``(N, C, …)`` blobs of one shape, with 4 or 5 axes, as rows of ``repeat · C`` elements."""

    def __init__(self, like: Tensor) -> None:
        self.channels = like.shape[1]
        self.count = like.numel() // self.channels  # elements a channel
        self.repeat = 1
        while self.repeat * self.channels < WIDTH and self.count % (2 * self.repeat) == 0:
            self.repeat *= 2

    def of(self, x: Tensor) -> Tensor:
        return places(channels_last(x)).reshape(-1, self.repeat * self.channels)

    def sum(self, rows: Tensor) -> Tensor:
        """Sum by channel."""
        return rows.sum(0).view(self.repeat, self.channels).sum(0)

    def spread(self, by_channel: Tensor) -> Tensor:
        return by_channel.expand(self.repeat, -1).reshape(-1)


def normalise(x: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """``(x - mean) / sqrt(variance + eps)`` by channel; the batch's mean and its unbiased variance.

    The variance in the quotient is the biased one; the unbiased one of a single element is given as 0. Mean and
    variance carry no gradient. ``x`` is ``(N, channels, …)``.
    """
    rule = _NormaliseRows if is_channels_last(x) else _NormalisePlanes
    return rule.apply(x, eps)  # type: ignore[no-untyped-call,no-any-return]


class _NormalisePlanes(torch.autograd.Function):
    """By torch's kernels, which are exact in contiguous layout."""

    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
        mean, variance = x.new_zeros(x.shape[1]), x.new_zeros(x.shape[1])
        top, _, inverse = torch.native_batch_norm(x, None, None, mean, variance, True, 1.0, eps)
        if x.numel() == x.shape[1]:
            variance.zero_()
        ctx.save_for_backward(top, inverse)
        ctx.mark_non_differentiable(mean, variance)
        return top, mean, variance

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, d_top: Tensor, *_: Tensor) -> tuple[Tensor, None]:
        # The top as if it had been normalised once more: by mean 0 and variance 1, then scaled by ``inverse``.
        top, inverse = ctx.saved_tensors  # type: ignore[attr-defined]
        zeros, ones = torch.zeros_like(inverse), torch.ones_like(inverse)
        diffs = torch.ops.aten.native_batch_norm_backward(
            d_top, top, inverse, None, None, zeros, ones, True, 0.0, [True, False, False]
        )
        return diffs[0], None


class _NormaliseRows(torch.autograd.Function):
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
        unbiased = variance * (rows.count / max(rows.count - 1, 1))
        ctx.save_for_backward(top, inverse)
        ctx.mark_non_differentiable(mean, unbiased)
        return top, mean, unbiased

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
    """``factors · x + summands`` by channel, for ``x`` in channels-last layout."""
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
