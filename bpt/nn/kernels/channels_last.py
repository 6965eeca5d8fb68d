"""Channels-last: image and volume blobs whose channels lie side by side in memory, place after place."""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor

from bpt.nn.kernels.recording import plain_shape

FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}  # by the number of axes; other blobs have one layout


def channels_last(x: Tensor) -> Tensor:
    """Return ``x``, which has 4 or 5 axes, with its channels side by side; a copy if they are not."""
    if x.shape[1] != 1:
        return x.contiguous(memory_format=FORMATS[x.dim()])
    # With one channel both layouts are the same memory; only the strides show kernels which one it is.
    shape = plain_shape(x)
    sizes = shape[2:]
    strides = (prod(sizes[axis:]) for axis in range(1, len(sizes) + 1))
    return x.contiguous().as_strided(shape, (prod(sizes), 1, *strides))


def is_channels_last(x: Tensor) -> bool:
    """Return whether ``x`` is a blob of 4 or 5 axes that is in channels-last order, and in no other."""
    return x.dim() in FORMATS and x.is_contiguous(memory_format=FORMATS[x.dim()]) and not x.is_contiguous()


def has_channels_last_strides(x: Tensor) -> bool:
    """Return whether torch's kernels treat ``x``, which has 4 axes, as channels-last.

    With one channel both layouts are the same memory, and kernels look at the strides.
    """
    if x.shape[1] != 1:
        return is_channels_last(x)
    return x.stride(1) == 1 and x.shape[2] * x.shape[3] > 1


def in_format(x: Tensor, last: bool) -> Tensor:
    """Return ``x``, which has 4 axes, in channels-last layout or, if not ``last``, contiguous; a copy if it is not."""
    if last:
        return channels_last(x)
    x = x.contiguous()
    return x.view(-1).view(x.shape) if has_channels_last_strides(x) else x


def format_of(x: Tensor) -> torch.memory_format:
    """Return the layout of ``x``; contiguous if it is both or neither."""
    return FORMATS[x.dim()] if is_channels_last(x) else torch.contiguous_format


def places(x: Tensor) -> Tensor:
    """Return ``x``, ``(N, channels, …)``, as ``(N · places, channels)``: a view if ``x`` is channels-last."""
    return x.movedim(1, -1).reshape(-1, x.shape[1])
