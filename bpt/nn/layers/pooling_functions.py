"""Pooling of tensors ``(N, channels, spatial axes …)`` by a ``PoolingWindow``, with torch's kernels.

Torch and Caffe agree on most windows, with two exceptions. Torch's kernels take a pad of at most half the kernel. Torch
never has a window without elements (``PoolingWindow.places``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from operator import gt

import torch
from torch import Tensor
from torch.nn import functional

from bpt.nn.kernels.max_pool import max_pool_with_places
from bpt.nn.layers.pooling_window import PoolingWindow

AVERAGE_POOL = {1: functional.avg_pool1d, 2: functional.avg_pool2d, 3: functional.avg_pool3d}


def max_pool(x: Tensor, window: PoolingWindow, with_places: bool) -> Tensor | tuple[Tensor, Tensor]:
    """Return the maximum of each window and, on demand, its flat index in the plane as a float.

    Of equal maxima the first counts. A window without elements gives ``-FLT_MAX`` and -1.
    """
    sizes = x.shape[2:]
    inner, pad = _widen(x, window, float("-inf"))
    y, index = max_pool_with_places(inner, window.kernel, window.stride, pad, window.ceil)
    places = window.places(sizes)
    y = _fit(y, places, torch.finfo(x.dtype).min)
    if not with_places:
        return y
    if inner is not x:
        index = _without_pad(index, inner.shape[2:], window.pad, sizes)
    return y, _fit(index, places, -1).to(x.dtype)


def average_pool(x: Tensor, window: PoolingWindow, counts_pad: bool = True) -> Tensor:
    """Return the sum of each window over its size without the part beyond the far pad.

    A window without elements gives 0 (Caffe: 0 / 0).

    Args:
        counts_pad: if false, the size is that of the part of the window on ``x``.
    """
    if not counts_pad and any(window.pad):
        filled = average_pool(x.new_ones((1, 1, *x.shape[2:])), window)  # the part of each window that is not pad
        return average_pool(x, window) / torch.where(filled > 0, filled, 1)
    sizes = x.shape[2:]
    if window.kernel == tuple(sizes) and not any(window.pad):
        return x.mean(tuple(range(2, x.dim())), keepdim=True)
    if len(sizes) == 3:
        window = _within_pads(window, sizes)
    inner, pad = _widen(x, window, 0)
    y: Tensor = AVERAGE_POOL[len(sizes)](inner, window.kernel, window.stride, pad, window.ceil, True)
    return _fit(y, window.places(sizes), 0)


def stochastic_pool(x: Tensor, window: PoolingWindow, draw: Tensor | None) -> Tensor:
    """Return a random element of each window, or the average weighted by the elements themselves.

    Args:
        draw: a number in [0, 1) for each element of the top. The first element is picked at which the window's running
            sum reaches that part of its sum. ``None`` means the weighted average, which is 0 where a window sums to 0.
    """
    windows = _windows(x, window)
    sums = windows.cumsum(-1)
    total = sums[..., -1]
    if draw is None:
        return (windows * windows).sum(-1) / torch.where(total > 0, total, 1)
    before = (sums < (draw * total).unsqueeze(-1)).sum(-1, keepdim=True)
    return windows.gather(-1, before.clamp(max=windows.shape[-1] - 1)).squeeze(-1)


def _windows(x: Tensor, window: PoolingWindow) -> Tensor:
    """Return windows without pads, ``(N, channels, places …, elements of the window)``; overhanging elements are 0."""
    sizes = x.shape[2:]
    axes = list(zip(sizes, window.kernel, window.stride, window.places(sizes), strict=True))
    x = _pad(x, [(0, max(0, (places - 1) * stride + kernel - size)) for size, kernel, stride, places in axes], 0)
    for axis, (_, kernel, stride, places) in enumerate(axes, start=2):
        x = x.unfold(axis, kernel, stride).narrow(axis, 0, places)
    return x.flatten(2 + len(axes))


def _widen(x: Tensor, window: PoolingWindow, value: float) -> tuple[Tensor, tuple[int, ...]]:
    """Return ``x`` and the pad for torch's kernels: pads that are too big for them are added to ``x``.

    This includes all pads of 3 axes with a kernel larger than the bottom. Torch's average refuses these with any pad.
    """
    sizes = x.shape[2:]
    refused = len(sizes) == 3 and any(map(gt, window.kernel, sizes))
    if not refused and all(2 * pad <= kernel for pad, kernel in zip(window.pad, window.kernel, strict=True)):
        return x, window.pad
    return _pad(x, [(pad, pad) for pad in window.pad], value), (0,) * len(window.pad)


def _within_pads(window: PoolingWindow, sizes: Sequence[int]) -> PoolingWindow:
    """Cut kernels that reach over both pads down to them. Each such window is alone on its axis."""
    axes = zip(window.kernel, sizes, window.pad, strict=True)
    return replace(window, kernel=tuple(min(kernel, size + 2 * pad) for kernel, size, pad in axes))


def _fit(y: Tensor, places: Sequence[int], empty: float) -> Tensor:
    """Cut ``y`` down to ``places``, or fill it with the value of a window without elements."""
    if tuple(y.shape[2:]) == tuple(places):
        return y
    y = _pad(y, [(0, max(0, want - have)) for want, have in zip(places, y.shape[2:], strict=True)], empty)
    for axis, want in enumerate(places, start=2):
        y = y.narrow(axis, 0, want)
    return y


def _pad(x: Tensor, pads: Sequence[tuple[int, int]], value: float) -> Tensor:
    """Pad the spatial axes, each by ``(before, after)``."""
    return functional.pad(x, list(chain.from_iterable(reversed(pads))), value=value)


def _without_pad(index: Tensor, padded: Sequence[int], pads: Sequence[int], sizes: Sequence[int]) -> Tensor:
    """Convert flat indices into a padded plane to indices into the plane itself."""
    places = torch.unravel_index(index, tuple(padded))
    flat = torch.zeros_like(index)
    for place, pad, size in zip(places, pads, sizes, strict=True):
        flat = flat * size + place - pad
    return flat
