"""resize: bilinear, with the rounding of OpenCV, which resizes Caffe's images."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]
_ONE = np.float32(2048)  # a weight of 1: OpenCV computes with integers (imgproc/resize.cpp)


def resize(image: Pixels, height: int, width: int) -> Pixels:
    """``image`` (C, H, W) as (C, ``height``, ``width``), by bilinear interpolation between the centres of its pixels.

    Nothing is smoothed where an image shrinks (Pillow's BILINEAR does that). To the last bit what ``cv::resize`` with
    INTER_LINEAR makes of 8-bit images. Quickest if pixels lie next to each other, as in a decoded image, blue or red
    first; the result is like that, too.
    """
    channels, old_height, old_width = image.shape
    if (old_height, old_width) == (height, width):
        return image
    if image.strides[0] < 0:
        return resize(image[::-1], height, width)[::-1]
    wide = _along_rows(np.ascontiguousarray(image.transpose(1, 2, 0)), width)
    tops, parts = _places(old_height, height)
    upper, lower = _weights(parts)
    result = wide[tops.clip(0, old_height - 1)]
    below = wide[(tops + 1).clip(0, old_height - 1)]
    for sums, weights in ((result, upper), (below, lower)):
        sums *= weights[:, np.newaxis]
        sums >>= 16
    result += below
    result += 2
    result >>= 2
    resized: Pixels = result.astype(np.uint8).reshape(height, width, channels).transpose(2, 0, 1)
    return resized


def _along_rows(pixels: Pixels, width: int) -> NDArray[np.int32]:
    """The rows of ``pixels`` (H, W, C) interpolated, in 128ths: (H, ``width`` · C)."""
    height, old_width, channels = pixels.shape
    lefts, parts = _places(old_width, width)
    # Beyond a border there is the border's pixel.
    parts = np.where((lefts < 0) | (lefts >= old_width - 1), np.float32(0), parts)
    rows = pixels.reshape(height, -1)
    left, right = _weights(parts)
    wide = np.multiply(rows[:, _columns(lefts, pixels)], left.repeat(channels), dtype=np.int32)
    wide += np.multiply(rows[:, _columns(lefts + 1, pixels)], right.repeat(channels), dtype=np.int32)
    wide >>= 4
    return wide


def _columns(places: NDArray[np.int64], pixels: Pixels) -> NDArray[np.int64]:
    """Where the channels of the pixels at ``places`` of a row stand; beyond a border, those of the border's."""
    _, width, channels = pixels.shape
    firsts: NDArray[np.int64] = places.clip(0, width - 1)[:, np.newaxis] * channels
    return (firsts + np.arange(channels)).ravel()


@lru_cache(maxsize=256)
def _places(old: int, new: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """For each new pixel of an axis the old one at or before it, perhaps -1, and how far it lies behind that one."""
    at = ((np.arange(new) + 0.5) * (1 / (new / old)) - 0.5).astype(np.float32)
    before = np.floor(at)
    return before.astype(np.int64), at - before


def _weights(parts: NDArray[np.float32]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The weights of the pixels before and behind."""
    return np.rint((1 - parts) * _ONE).astype(np.int32), np.rint(parts * _ONE).astype(np.int32)
