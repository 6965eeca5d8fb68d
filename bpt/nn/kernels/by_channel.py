"""Normalising and scaling by channel on a CPU, in fewer passes over memory and more exactly than torch does.

*Passes*: normalising and the following Scale are one multiply-add for each element. Forward reads a blob three times
and writes it once. The backward pass keeps the bottom, which no other layer keeps, so the next layer may write over the
top (``Layer.top_is_free``).

*Exactness*: in channels-last layout torch adds one row of channels after the other, with errors of 1e-5; its contiguous
kernels have 3e-7. Here its kernels see rows of many places side by side. Each place has its own sums, which are added
afterwards. This also fills the vector units when channels are few.

Blobs may be in bfloat16. Values by channel are then in float32, and results are rounded once, at the end.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from bpt.nn.kernels.channels_last import channels_last, is_channels_last

WIDTH = 1024  # the least number of elements of a row

Gradients = tuple[Tensor | None, ...]


def applies(x: Tensor) -> bool:
    """Return whether the functions of this file can process ``x``."""
    numbers = x.dtype in (torch.float32, torch.bfloat16)
    return x.device.type == "cpu" and numbers and not torch.compiler.is_compiling()


class _Rows:
    """``(N, C, …)`` blobs of one shape, channels-last, as rows of ``repeat · C`` elements."""

    def __init__(self, like: Tensor) -> None:
        self.channels = like.shape[1]
        self.count = like.numel() // self.channels  # elements a channel
        self.repeat = 1
        while self.repeat * self.channels < WIDTH and self.count % (4 * self.repeat) == 0:
            self.repeat *= 2
        self._width = self.repeat * self.channels
        self._rows = self.count // self.repeat

    def of(self, x: Tensor) -> Tensor:
        """Return a view of a channels-last blob as ``(rows, width)``."""
        return x.as_strided((self._rows, self._width), (self._width, 1))

    def spread(self, *by_channel: Tensor) -> tuple[Tensor, ...]:
        """Return the values by channel, repeated for each element of a row."""
        return tuple(values.expand(self.repeat, self.channels).reshape(self._width) for values in by_channel)

    def moments(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and biased variance by channel."""
        numbers = torch.empty(self._width) if x.dtype == torch.bfloat16 else None  # the results have its type
        means, variances = torch.batch_norm_update_stats(self._image(x), numbers, numbers, 0.0)
        between, mean = torch.var_mean(self._together(means), 0, correction=0)
        return mean, self._together(variances).mean(0).add_(between)

    def affine(self, x: Tensor, slope: Tensor, level: Tensor) -> Tensor:
        """Return ``slope · x + level`` by channel."""
        if x.dtype != slope.dtype:
            return self.normalised(x, torch.zeros_like(slope), torch.ones_like(slope), 0.0, slope, level)
        top, (factors, summands) = torch.empty_like(x), self.spread(slope, level)
        torch.addcmul(summands, self.of(x), factors, out=self.of(top))
        return top

    def normalised(
        self, x: Tensor, mean: Tensor, variance: Tensor, eps: float, factors: Tensor | None, summands: Tensor | None
    ) -> Tensor:
        """Return ``factors · (x - mean) / sqrt(variance + eps) + summands`` by channel, of a blob in half precision.

        It uses a kernel for half precision, so no wider copy of the blob is made.
        """
        top, none = torch.empty_like(x), mean.new_empty(0)
        given = [vector for vector in (factors, summands) if vector is not None]
        mean, variance, *rest = self.spread(mean, variance, *given)
        wide = None if factors is None else rest.pop(0), None if summands is None else rest.pop(0)
        torch.ops.aten.native_batch_norm.out(
            self._image(x), *wide, mean, variance, False, 0.0, eps,
            out=self._image(top), save_mean=none, save_invstd=none.clone(),
        )  # fmt: skip
        return top

    def moments_of_diff(self, diff: Tensor, x: Tensor, mean: Tensor, inverse: Tensor) -> tuple[Tensor, Tensor]:
        """Return sums by channel of ``diff · (x - mean) · inverse`` and of ``diff``."""
        near, factor = self.spread(mean, inverse)
        _, along, level = torch.ops.aten.native_batch_norm_backward(
            self._image(diff), self._image(x), None, None, None, near, factor, True, 0.0, [False, True, True]
        )
        return self._together(along).sum(0), self._together(level).sum(0)

    def _together(self, by_element: Tensor) -> Tensor:
        return by_element.view(self.repeat, self.channels)

    def _image(self, x: Tensor) -> Tensor:
        """Return a channels-last image whose channels are the elements of a row.

        It has two places, so its layout is unambiguous.
        """
        width = self._width
        places = 2 if self._rows % 2 == 0 else 1
        return x.as_strided((self._rows // places, width, places, 1), (places * width, 1, width, width))


def normalise(
    x: Tensor, eps: float, factors: Tensor | None = None, summands: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return ``factors · (x - mean) / sqrt(variance + eps) + summands`` by channel, and the batch's statistics.

    The variance in the quotient is the biased one. Mean and variance carry no gradient.

    Args:
        x: ``(N, channels, …)``; the top has its layout.
        factors: ``(channels,)``; by default 1.
        summands: ``(channels,)``; by default 0.
        eps: the number that is added to the variance.

    Returns:
        The top, the mean, and the unbiased variance, which is 0 for a single element.
    """
    rule = _NormaliseRows if is_channels_last(x) else _NormalisePlanes
    return rule.apply(x, eps, factors, summands)  # type: ignore[no-untyped-call,no-any-return]


class _NormalisePlanes(torch.autograd.Function):
    """The normalisation by torch's kernels, which are exact in contiguous layout."""

    @staticmethod
    def forward(
        ctx: FunctionCtx, x: Tensor, eps: float, factors: Tensor | None, summands: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        numbers = torch.promote_types(x.dtype, torch.float32)
        mean, variance = (x.new_zeros(x.shape[1], dtype=numbers) for _ in range(2))
        top, near, inverse = torch.native_batch_norm(x, factors, summands, mean, variance, True, 1.0, eps)
        if x.numel() == x.shape[1]:
            variance.zero_()
        ctx.save_for_backward(x, near, inverse, factors)  # type: ignore[arg-type]
        ctx.mark_non_differentiable(mean, variance)
        ctx.set_materialize_grads(False)  # otherwise backward gets zeros as the diffs of the statistics
        return top, mean, variance

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, d_top: Tensor | None, *_: None) -> Gradients:
        if d_top is None:
            return None, None, None, None
        x, mean, inverse, factors = ctx.saved_tensors  # type: ignore[attr-defined]
        wants_x, _, *wants = ctx.needs_input_grad  # type: ignore[attr-defined]
        bottom, along, level = torch.ops.aten.native_batch_norm_backward(
            d_top, x, factors, None, None, mean, inverse, True, 0.0, [wants_x, *wants]
        )
        return bottom, None, along if wants[0] else None, level if wants[1] else None


class _NormaliseRows(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: FunctionCtx, x: Tensor, eps: float, factors: Tensor | None, summands: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        x = channels_last(x)
        rows = _Rows(x)
        mean, variance = rows.moments(x)
        inverse = torch.rsqrt(variance + eps)
        if x.dtype == mean.dtype:
            slope = inverse if factors is None else inverse * factors
            level = -mean * slope if summands is None else torch.addcmul(summands, mean, slope, value=-1)
            top = rows.affine(x, slope, level)
        else:
            top = rows.normalised(x, mean, variance, eps, factors, summands)
        unbiased = variance * (rows.count / max(rows.count - 1, 1))
        ctx.save_for_backward(x, mean, inverse, factors)  # type: ignore[arg-type]
        ctx.mark_non_differentiable(mean, unbiased)
        ctx.set_materialize_grads(False)  # otherwise backward gets zeros as the diffs of the statistics
        return top, mean, unbiased

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, d_top: Tensor | None, *_: None) -> Gradients:
        if d_top is None:
            return None, None, None, None
        # With y = (x - mean) / s: dx = factors (dy - Σ dy / n - y Σ (dy y) / n) / s, which is linear in dy and in x.
        x, mean, inverse, factors = ctx.saved_tensors  # type: ignore[attr-defined]
        wants_x, _, wants_factors, wants_summands = ctx.needs_input_grad  # type: ignore[attr-defined]
        d_top = channels_last(d_top)
        if x.dtype != mean.dtype:
            return _NormalisePlanes.backward(ctx, d_top)
        rows = _Rows(x)
        along, level = rows.moments_of_diff(d_top, x, mean, inverse)
        bottom = None
        if wants_x:
            of_dy = inverse if factors is None else inverse * factors
            of_x = (of_dy * inverse).mul_(along).div_(-rows.count)
            rest = torch.addcmul(mean * of_x, of_dy, level, value=1 / rows.count).neg_()
            bottom = torch.empty_like(x)
            dx = rows.of(bottom)
            rest, of_dy, of_x = rows.spread(rest, of_dy, of_x)
            torch.addcmul(rest, rows.of(d_top), of_dy, out=dx)
            dx.addcmul_(rows.of(x), of_x)
        return bottom, None, along if wants_factors else None, level if wants_summands else None


def scale(x: Tensor, factors: Tensor, summands: Tensor) -> Tensor:
    """Return ``factors · x + summands`` by channel, for ``x`` in channels-last layout."""
    return _Scale.apply(x, factors, summands)  # type: ignore[no-untyped-call,no-any-return]


class _Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, factors: Tensor, summands: Tensor) -> Tensor:
        x = channels_last(x)
        ctx.save_for_backward(x, factors)
        return _Rows(x).affine(x, factors, summands)

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, d_top: Tensor) -> Gradients:
        x, factors = ctx.saved_tensors  # type: ignore[attr-defined]
        rows, d_top = _Rows(x), channels_last(d_top)
        zeros = torch.zeros_like(factors)
        d_factors, d_summands = rows.moments_of_diff(d_top, x, zeros, torch.ones_like(factors))
        return rows.affine(d_top, factors, zeros), d_factors, d_summands
