"""Max pooling of contiguous tensors on a CPU, by torch's kernel for channels-last ones.

Torch finds the maxima of contiguous tensors one by one, and those of channels-last tensors for many channels at once.
So a few samples at a time are brought into that layout and pooled. The numbers are the same, bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx
from torch.nn import functional

from bpt.nn.kernels.channels_last import FORMATS, channels_last
from bpt.nn.kernels.recording import is_compiling_or_tracing

POOL = {
    3: functional.max_pool1d_with_indices,
    4: functional.max_pool2d_with_indices,
    5: functional.max_pool3d_with_indices,
}  # by the number of axes
BACKWARD = {
    4: torch.ops.aten.max_pool2d_with_indices_backward,
    5: torch.ops.aten.max_pool3d_with_indices_backward,
}
NARROW = 8  # channels below which the other layout does not pay
SMALL = 50_000  # elements for each thread below which it does not, either
BLOCK = 250_000  # elements for each thread that are brought into the other layout at once, and stay in a core's cache


def max_pool_with_places(
    x: Tensor, kernel: Sequence[int], stride: Sequence[int], pad: Sequence[int], ceil: bool
) -> tuple[Tensor, Tensor]:
    """Return the result of torch's ``max_pool…_with_indices``: the maxima, and their flat indices in the plane.

    Args:
        x: ``(N, channels, spatial axes …)``, with 1 to 3 spatial axes.
        kernel, stride, pad: one number for each spatial axis.
        ceil: whether a last window that is only partly on ``x`` counts.
    """
    window = list(kernel), list(stride), list(pad), [1] * len(kernel), ceil
    y: Tensor
    places: Tensor
    if not is_compiling_or_tracing() and _is_slow(x):
        y, places = _MaxPool.apply(x, window)  # type: ignore[no-untyped-call]
    else:
        y, places = POOL[x.dim()](x, *window)
    return y, places


def _is_slow(x: Tensor) -> bool:
    """Return whether torch pools ``x`` more slowly than in parts that are channels-last."""
    if x.dim() not in FORMATS or x.shape[1] < NARROW or x.numel() < SMALL * torch.get_num_threads():
        return False
    if x.device.type != "cpu" or x.dtype != torch.float32:
        return False
    return x.is_contiguous() and not x.is_contiguous(memory_format=FORMATS[x.dim()])


class _MaxPool(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, window: tuple[Any, ...]) -> tuple[Tensor, Tensor]:
        blocks = min(len(x), math.ceil(x.numel() / (BLOCK * torch.get_num_threads())))
        pool, samples = POOL[x.dim()], math.ceil(len(x) / blocks)  # blocks of one size, as far as possible
        results: list[Tensor] = []
        for start in range(0, len(x), samples):
            part = pool(channels_last(x[start : start + samples]), *window)
            results = results or [each.new_empty((len(x), *each.shape[1:])) for each in part]
            for whole, each in zip(results, part, strict=True):
                whole[start : start + samples] = each
        y, places = results
        ctx.save_for_backward(x, places)
        ctx.mark_non_differentiable(places)
        ctx.set_materialize_grads(False)  # otherwise backward gets zeros as the diffs of the places
        ctx.window = window  # type: ignore[attr-defined]
        return y, places

    @staticmethod
    def backward(ctx: FunctionCtx, dy: Tensor, _: Tensor | None) -> tuple[Tensor | None, None]:
        x, places = ctx.saved_tensors  # type: ignore[attr-defined]
        back = BACKWARD[x.dim()]
        return back(dy, x, *ctx.window, places), None  # type: ignore[attr-defined]
