"""Resizes 8-bit images bilinearly as OpenCV, which Caffe uses, does.

OpenCV (imgproc/resize.cpp) interpolates along rows first, then along columns, in integers: 11 bits for a weight, 7 for
the fraction of a pixel between the two steps. ``resize`` computes the same integers with as few and as narrow array
operations as possible.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]
_BITS = 11  # of a weight
_ONE = np.float32(1 << _BITS)  # the integer that stands for a weight of 1
_LOW = 4  # bits that the first step drops
_NEEDED = 2  # old rows that a new one needs at most


class _Axis(NamedTuple):
    """The interpolation along one axis: pixels ``before`` and ``after`` each new one, and the weights of these."""

    before: NDArray[np.intp]
    after: NDArray[np.intp]
    weights_before: NDArray[np.int32]
    weights_after: NDArray[np.int32]


class _Strides(NamedTuple):
    """Bytes from one channel, row or pixel to the next."""

    channel: int
    row: int
    pixel: int


def resize(image: Pixels, height: int, width: int) -> Pixels:
    """Resize ``image`` (C, H, W) to (C, ``height``, ``width``), by bilinear interpolation between centres of pixels.

    The result equals that of ``cv::resize`` with INTER_LINEAR for 8-bit images, to the last bit. Unlike Pillow's
    BILINEAR, it does not smooth an image that shrinks. It is fastest with interleaved pixels, as in a decoded image.
    In the result, each channel has contiguous rows. An image that has this size already is returned as it is.
    """
    channels, old_height, old_width = image.shape
    if (old_height, old_width) == (height, width):
        return image
    axis = _axis(old_height, height)
    used = None
    if old_height > _NEEDED * height:
        used, places = np.unique(np.stack((axis.before, axis.after)), return_inverse=True)
        before, after = places.reshape(2, height)
        axis = axis._replace(before=before, after=after)
    wide = _along_rows(image, width, used)
    result = wide.take(axis.before, 0).astype(np.int32)
    below = wide.take(axis.after, 0).astype(np.int32)
    for sums, weights in ((result, axis.weights_before), (below, axis.weights_after)):
        sums *= weights[:, np.newaxis]
        sums >>= 16
    result += below
    result += 2
    result >>= 2
    resized: Pixels = result.astype(np.uint8).reshape(height, channels, width).transpose(1, 0, 2)
    return resized


def _along_rows(image: Pixels, width: int, used: NDArray[np.intp] | None) -> NDArray[np.int16]:
    """Return the rows ``used``, or all, interpolated, in 128ths: (rows, C · ``width``), channel after channel."""
    channels, height, old_width = image.shape
    strides = _strides(image)
    if not abs(strides.channel) * channels <= strides.pixel <= strides.row // old_width:
        image = np.ascontiguousarray(image.transpose(1, 2, 0)).transpose(2, 0, 1)
        strides = _strides(image)
    first = image[::-1] if strides.channel < 0 else image
    # Rows as bytes in the order of memory. Behind the pixels of the last one, memory may end before the others' gap.
    size = abs(strides.channel) * (channels - 1) + strides.pixel * (old_width - 1) + 1
    upper = np.lib.stride_tricks.as_strided(first, (height - 1, strides.row), (strides.row, 1), writeable=False)
    last = np.lib.stride_tricks.as_strided(first[:, height - 1 :], (1, size), (size, 1), writeable=False)
    if used is not None:
        last = last[: int(used[-1] == height - 1)]
        upper = upper[used[: len(used) - len(last)]]
    left, right = (np.empty((len(upper) + len(last), channels * width), np.int16) for _ in range(2))
    columns_before, columns_after, weights_before, weights_after = _columns(
        old_width, width, channels, strides.channel, strides.pixel
    )
    for target, columns in ((left, columns_before), (right, columns_after)):
        target[: len(upper)] = upper.take(columns, 1)
        target[len(upper) :] = last.take(columns, 1)
    return _between(left, right, weights_before, weights_after)


def _strides(image: Pixels) -> _Strides:
    """Return the strides of ``image`` (C, H, W); an axis of length 1, whose stride may be any, gets the least one."""
    channels, height, width = image.shape
    channel, row, pixel = image.strides
    channel = channel if channels > 1 else 1
    pixel = pixel if width > 1 else abs(channel) * channels
    return _Strides(channel, row if height > 1 else pixel * width, pixel)


def _between(
    left: NDArray[np.int16],
    right: NDArray[np.int16],
    weights_left: NDArray[np.int32],
    weights_right: NDArray[np.int32],
) -> NDArray[np.int16]:
    """Return ``(left · weights_left + right · weights_right) >> 4``; ``left`` and ``right`` may be overwritten.

    These products have 20 bits. If the weights of each pair sum to 2048, 16 bits are enough, which is faster: with a
    right weight 16 · h + l, it is ``128 · left + (right - left) · h + ((right - left) · l >> 4)``. The first sum
    may overflow, but the result does not, so it is right modulo 2^16.
    """
    if (weights_left + weights_right != 1 << _BITS).any():  # by rounding, at few sizes above 4096
        return ((left * weights_left + right * weights_right) >> _LOW).astype(np.int16)
    right -= left
    low = right * (weights_right & ((1 << _LOW) - 1)).astype(np.int16)
    low >>= _LOW
    right *= (weights_right >> _LOW).astype(np.int16)
    left <<= _BITS - _LOW
    left += right
    left += low
    return left


@lru_cache(maxsize=256)
def _columns(
    old: int, new: int, channels: int, channel: int, pixel: int
) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.int32], NDArray[np.int32]]:
    """Return the bytes of a row before and after each new one, and their weights, channel after channel.

    Args:
        channel: bytes from a channel to the next one; negative: the last channel comes first in memory.
        pixel: bytes from a pixel to the next one.
    """
    axis = _axis(old, new)
    starts = np.arange(channels)[:, np.newaxis] * channel
    starts -= starts.min()
    before, after = ((starts + places * pixel).ravel() for places in (axis.before, axis.after))
    # Beyond a border, where both are the same pixel, OpenCV gives one of them the whole weight.
    both = axis.before == axis.after
    weights_before = np.where(both, np.int32(1 << _BITS), axis.weights_before)
    weights_after = np.where(both, np.int32(0), axis.weights_after)
    return before, after, np.tile(weights_before, channels), np.tile(weights_after, channels)


@lru_cache(maxsize=256)
def _axis(old: int, new: int) -> _Axis:
    """Return the interpolation of ``old`` pixels to ``new`` ones; pixels beyond a border repeat the border's pixel."""
    at = ((np.arange(new) + 0.5) * (1 / (new / old)) - 0.5).astype(np.float32)
    whole = np.floor(at)
    parts = at - whole
    before = whole.astype(np.intp)
    after = (before + 1).clip(0, old - 1)
    weights_before, weights_after = (np.rint(part * _ONE).astype(np.int32) for part in (1 - parts, parts))
    return _Axis(before.clip(0, old - 1), after, weights_before, weights_after)
