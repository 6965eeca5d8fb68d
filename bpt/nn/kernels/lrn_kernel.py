"""LRN across channels, several times as fast as torch's, which pools over a fifth axis.

The tensor is processed in blocks whose intermediate values stay in the cache. The sum over neighbouring channels is a
few additions of one padded buffer to itself, shifted by whole channels.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.nn import functional

BLOCK = 400_000  # elements; with its buffers, 1.6 MB each, a block about fills a core's cache


def lrn_across(x: Tensor, size: int, alpha: float, beta: float, k: float) -> Tensor:
    """Return ``x · (k + alpha / size · Σ x²)^-beta``, with the sum over the ``size`` (odd) channels around each.

    Args:
        x: ``(N, channels, H, W)``, contiguous or channels-last. The result has its layout and type. Half precision is
            computed in single precision.
    """
    if torch.compiler.is_compiling() or not x.numel():  # a compiler generates its own loops from the plain formula
        return functional.local_response_norm(x, size, alpha, beta, k)
    y: Tensor = _LRNAcross.apply(x, size, alpha, beta, k)  # type: ignore[no-untyped-call]
    return y


def _lrn_in_program(x: Tensor, size: int, alpha: float, beta: float, k: float) -> Tensor:
    """Return the result of ``lrn_across``, as the operator ``bpt::lrn_across`` of TorchScript's programs."""
    recorder = torch._C._get_tracing_state()
    torch._C._set_tracing_state(None)  # type: ignore[attr-defined]  # a program has this operator, not its parts
    try:
        return lrn_across(x, size, alpha, beta, k)
    finally:
        torch._C._set_tracing_state(recorder)  # type: ignore[attr-defined]


OPERATORS = torch.library.Library("bpt", "FRAGMENT")  # type: ignore[no-untyped-call]
_SCHEMA = "lrn_across(Tensor x, int size, float alpha, float beta, float k) -> Tensor"
OPERATORS.define(_SCHEMA)  # type: ignore[no-untyped-call]
OPERATORS.impl("lrn_across", _lrn_in_program, "CPU")  # type: ignore[no-untyped-call]


class _LRNAcross(torch.autograd.Function):
    """``y = x · s^-beta`` with ``s = k + alpha / n · Σ x²``.

    So ``dx = dy · s^-beta - 2 · alpha · beta / n · x · Σ (dy · x · s^-beta / s)``.
    """

    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, size: int, alpha: float, beta: float, k: float) -> Tensor:
        layout = _layout(x)
        x = x.contiguous(memory_format=layout)
        y, s = torch.empty_like(x), torch.empty_like(x, dtype=_wide(x))
        window = _ChannelWindow(s, layout, size, fill=k / size)  # so each sum includes k
        share = s.new_full((), k / size)
        for x_block, y_block, s_block in window.blocks(x, y, s):
            x_part, y_part = x_block.to(s.dtype), window.room(y_block)
            torch.addcmul(share, x_part, x_part, value=alpha / size, out=window.buffer(x_part))
            window.sum_into(s_block)
            _power(s_block, beta, out=y_part).mul_(x_part)
            window.put(y_part, y_block)
        ctx.save_for_backward(x, s)
        ctx.settings = layout, size, beta, 2 * alpha * beta / size  # type: ignore[attr-defined]
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, s = ctx.saved_tensors  # type: ignore[attr-defined]
        layout, size, beta, factor = ctx.settings  # type: ignore[attr-defined]
        dy = dy.contiguous(memory_format=layout)
        dx = torch.empty_like(x)
        window = _ChannelWindow(s, layout, size, fill=0)
        for x_block, s_part, dy_part, dx_block in window.blocks(x, s, dy, dx):
            x_part, dx_part = x_block.to(s.dtype), window.room(dx_block)
            direct = _power(s_part, beta, out=window.scratch(x_part)).mul_(dy_part)
            torch.mul(direct, x_part, out=window.buffer(x_part)).div_(s_part)
            window.sum_into(dx_part).mul_(x_part)
            torch.sub(direct, dx_part, alpha=factor, out=dx_part)
            window.put(dx_part, dx_block)
        return dx, None, None, None, None


class _ChannelWindow:
    """Sums over neighbouring channels, for one block of a tensor at a time.

    As ``(outer, channels, inner)``, a contiguous tensor has a sample's places inside; a channels-last one has all
    places outside and 1 inside. ``fill`` replaces the channels before the first and after the last.
    """

    def __init__(self, like: Tensor, layout: torch.memory_format, size: int, fill: float) -> None:
        self.size = size
        self.channels_last = layout == torch.channels_last
        outer, self.channels, self.inner = self._view(like).shape
        row = self.channels * self.inner
        self.rows = max(1, min(outer, BLOCK // max(1, row)) if like.device.type == "cpu" else outer)
        self._padded = like.new_full((self.rows, self.channels + size - 1, self.inner), fill)
        self._total = torch.empty_like(self._padded)
        self._scratch = like.new_empty((self.rows, self.channels, self.inner))

    def _view(self, tensor: Tensor) -> Tensor:
        if self.channels_last:
            return tensor.permute(0, 2, 3, 1).view(-1, tensor.shape[1], 1)
        return tensor.view(*tensor.shape[:2], -1)

    def blocks(self, *tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
        """Return the same block of each of ``tensors``, ``(rows, channels, inner)``, block after block."""
        return zip(*(torch.split(self._view(tensor), self.rows) for tensor in tensors), strict=True)

    def scratch(self, block: Tensor) -> Tensor:
        """Return memory for an intermediate value of the block."""
        return self._scratch[: block.shape[0]]

    def room(self, block: Tensor) -> Tensor:
        """Return where to compute the values of ``block``: in itself, or in separate memory of a wider type."""
        return block if block.dtype == self._total.dtype else torch.empty_like(block, dtype=self._total.dtype)

    @staticmethod
    def put(computed: Tensor, block: Tensor) -> None:
        """Copy the result in the ``room`` of ``block`` to it."""
        if computed is not block:
            block.copy_(computed)

    def buffer(self, block: Tensor) -> Tensor:
        """Return where to write the summands of ``sum_into``."""
        return self._padded[: block.shape[0]].narrow(1, self.size // 2, self.channels)

    def sum_into(self, block: Tensor) -> Tensor:
        """Set each element of ``block`` to the sum of the buffer over the channels around it."""
        padded = self._padded[: block.shape[0]]
        if self.size == 1:
            return block.copy_(padded)
        # The shift is one flat copy, not row by row; elements that mix two rows are outside the view of the sum.
        flat = padded.flatten()
        length = flat.numel() - (self.size - 1) * self.inner
        first, second, *others = (flat.narrow(0, shift * self.inner, length) for shift in range(self.size - 1))
        total = torch.add(first, second, out=self._total.flatten()[:length])
        for other in others:
            total += other
        return torch.add(total.as_strided(block.shape, padded.stride()), padded[:, self.size - 1 :], out=block)


def _wide(x: Tensor) -> torch.dtype:
    """Return the number type to compute in."""
    return torch.promote_types(x.dtype, torch.float32)


def _layout(x: Tensor) -> torch.memory_format:
    plain = x.is_contiguous() or not x.is_contiguous(memory_format=torch.channels_last)
    return torch.contiguous_format if plain else torch.channels_last


def _power(s: Tensor, beta: float, out: Tensor) -> Tensor:
    """Return ``s^-beta``; for the usual beta by square roots, which cost a fraction of a power."""
    if beta == 0.75:
        return torch.sqrt(s, out=out).mul_(s).rsqrt_()
    return torch.pow(s, -beta, out=out)
