"""Cutting a window out of an image, with context around it, and warping it to a square (Caffe: WindowDataLayer)."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from bpt.data.resize import Pixels, resize
from bpt.data.window_source import Window
from bpt.errors import DataError

_F = np.float32  # Caffe computes in the precision of its blobs; rounding decides about pixels


class Cut(NamedTuple):
    """A warped window (C, h, w), and where its upper left corner comes in the crop; around it there is nothing."""

    pixels: Pixels
    top: int
    left: int


class WindowCrop:
    """How windows become crops of ``size`` × ``size`` pixels.

    Args:
        size: the side of the crop.
        context_pad: so many pixels at each side of the crop show what is around the window. What lies outside of the
            image is left empty.
        square: the window is first made a square around its centre, so that warping does not distort it.
    """

    def __init__(self, size: int, context_pad: int = 0, *, square: bool = False) -> None:
        assert size > 2 * context_pad, (size, context_pad)
        self.size = size
        self._pad = context_pad
        self._square = square

    def __call__(self, image: Pixels, window: Window, mirror: bool) -> Cut:
        """The crop of ``window`` out of its ``image`` (C, H, W); with ``mirror`` flipped left to right.

        Raises:
            DataError: the window is empty, or not in the image.
        """
        _, _, x1, y1, x2, y2 = window
        top = left = 0
        height = width = self.size
        is_window = x1 <= x2 and y1 <= y2
        if is_window and (self._pad or self._square):
            (x1, x2), (y1, y2) = self._widened(window)
            x1, x2, before, after, width = self._along(x1, x2, image.shape[2])
            y1, y2, top, _, height = self._along(y1, y2, image.shape[1])
            left = after if mirror else before
            height, width = min(height, self.size - top), min(width, self.size - left)
        if not (is_window and 0 <= x1 <= x2 < image.shape[2] and 0 <= y1 <= y2 < image.shape[1]):
            raise DataError(
                f"the window {' '.join(map(str, window[2:]))} (x1 y1 x2 y2) is not in the image of "
                f"{image.shape[2]} × {image.shape[1]} pixels"
            )
        if min(height, width) < 1:
            return Cut(np.empty((len(image), 0, 0), np.uint8), 0, 0)
        pixels = resize(image[:, y1 : y2 + 1, x1 : x2 + 1], height, width)
        return Cut(pixels[:, :, ::-1] if mirror else pixels, top, left)

    def _widened(self, window: Window) -> tuple[tuple[int, int], tuple[int, int]]:
        """The window with its context, perhaps beyond the image: first and last column, first and last row."""
        factor = _F(self.size) / _F(self.size - 2 * self._pad)
        half_width = _F((window.x2 - window.x1 + 1) / 2)
        half_height = _F((window.y2 - window.y1 + 1) / 2)
        x, y = _F(window.x1) + half_width, _F(window.y1) + half_height
        if self._square:
            half_width = half_height = max(half_width, half_height)
        return (
            (_round(x - half_width * factor), _round(x + half_width * factor)),
            (_round(y - half_height * factor), _round(y + half_height * factor)),
        )

    def _along(self, first: int, last: int, length: int) -> tuple[int, int, int, int, int]:
        """One axis of a window that may reach beyond the image.

        Returns:
            First and last pixel inside, pixels of the crop to leave empty before and behind, and those to fill.
        """
        scale = _F(self.size) / _F(last - first + 1)
        before, after = max(0, -first), max(0, last - length + 1)
        first, last = first + before, last - after
        filled = _round(_F(last - first + 1) * scale)
        return first, last, _round(_F(before) * scale), _round(_F(after) * scale), filled


def _round(value: np.float32) -> int:
    """As C rounds: halves away from 0."""
    return int(math.copysign(math.floor(abs(float(value)) + 0.5), value))
