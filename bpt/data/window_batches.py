"""Batches of random foreground and background windows (Caffe: WindowDataLayer).

A window is cropped from its image, with context around it, and warped to a square.
"""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from bpt.base.errors import DataError
from bpt.data.batches import Batches, empty
from bpt.data.image import Pixels
from bpt.data.opencv_resize import resize
from bpt.data.prefetch import ALONE, Workers
from bpt.data.sampler import SampleDraw, Sampler, below
from bpt.data.window_source import CHANNELS, ImageWindow, WindowSource
from bpt.graph.share import Share

_F = np.float32  # Caffe computes in the precision of its blobs, and the rounding selects pixels


class WarpedWindow(NamedTuple):
    """A warped window (C, h, w), and the position of its upper left corner in the crop, which is empty around it."""

    pixels: Pixels
    top: int
    left: int


class WindowPlacement(NamedTuple):
    """The part of an image in a crop, by first and last column and row, and the part of the crop that it fills."""

    x1: int
    y1: int
    x2: int
    y2: int
    top: int
    left: int
    height: int
    width: int


class WindowCrop:
    """The rule by which windows become crops of ``size`` × ``size`` pixels.

    Args:
        size: the side of the crop.
        context_pad: number of pixels at each side of the crop that show the surroundings of the window; pixels outside
            of the image stay empty.
        square: whether to extend the window to a square around its centre first, so that warping does not distort it.
    """

    def __init__(self, size: int, context_pad: int = 0, *, square: bool = False) -> None:
        assert size > 2 * context_pad, (size, context_pad)
        self.size = size
        self._pad = context_pad
        self._square = square

    def __call__(self, image: Pixels, window: ImageWindow, mirror: bool) -> WarpedWindow:
        """Return the crop of ``window`` from its ``image`` (C, H, W), flipped left to right if ``mirror``.

        Raises:
            DataError: the window is empty, or not in the image.
        """
        at = self.place(window, image.shape[1], image.shape[2], mirror)
        if min(at.height, at.width) < 1:
            return WarpedWindow(np.empty((len(image), 0, 0), np.uint8), 0, 0)
        pixels = resize(image[:, at.y1 : at.y2 + 1, at.x1 : at.x2 + 1], at.height, at.width)
        return WarpedWindow(pixels[:, :, ::-1] if mirror else pixels, at.top, at.left)

    def place(self, window: ImageWindow, rows: int, columns: int, mirror: bool = False) -> WindowPlacement:
        """Return the placement of ``window`` in an image of ``rows`` × ``columns`` pixels; raise as a call does."""
        _, _, x1, y1, x2, y2 = window
        top = left = 0
        height = width = self.size
        is_window = x1 <= x2 and y1 <= y2
        if is_window and (self._pad or self._square):
            (x1, x2), (y1, y2) = self._widened(window)
            x1, x2, before, after, width = self._along(x1, x2, columns)
            y1, y2, top, _, height = self._along(y1, y2, rows)
            left = after if mirror else before
            height, width = min(height, self.size - top), min(width, self.size - left)
        if not (is_window and 0 <= x1 <= x2 < columns and 0 <= y1 <= y2 < rows):
            raise DataError(
                f"the window {' '.join(map(str, window[2:]))} (x1 y1 x2 y2) is not in the image of "
                f"{columns} × {rows} pixels"
            )
        return WindowPlacement(x1, y1, x2, y2, top, left, height, width)

    def _widened(self, window: ImageWindow) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return first and last column and first and last row of the window with context, even beyond the image."""
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
        """Compute one axis of the placement of a window that may reach beyond the image.

        Returns:
            First and last pixel inside, pixels of the crop to leave empty before and behind, and those to fill.
        """
        scale = _F(self.size) / _F(last - first + 1)
        before, after = max(0, -first), max(0, last - length + 1)
        first, last = first + before, last - after
        filled = _round(_F(last - first + 1) * scale)
        return first, last, _round(_F(before) * scale), _round(_F(after) * scale), filled


def _round(value: np.float32) -> int:
    """Round halves away from 0, as C does."""
    return int(math.copysign(math.floor(abs(float(value)) + 0.5), value))


class WindowBatches(Batches[WindowSource]):
    """Batches of (data (B, 3, size, size), label (B,)).

    The last ``foreground`` of each ``batch_size`` samples are foreground windows, and the others are background. Each
    is drawn from all windows of its kind. The choice and the mirroring depend only on ``seed`` and the sample's
    position in the stream. The stream has no real epochs; by definition, an epoch has as many samples as there are
    windows.

    Args:
        batch_size: the batch size in the text; the whole batch may be a multiple of it.
        foreground: number of foreground windows in ``batch_size`` samples.
        mean: the mean to subtract from each crop: (3, size, size). Empty pixels of a crop stay 0.
        scale: the factor after that.
        mirror: whether half of the windows are flipped left to right.
    """

    def __init__(
        self,
        source: WindowSource,
        share: Share,
        batch_size: int,
        foreground: int,
        crop: WindowCrop,
        mean: NDArray[np.float32],
        scale: float,
        *,
        mirror: bool,
        seed: int,
        workers: Workers = ALONE,
    ) -> None:
        super().__init__(source, Sampler([len(source.foreground) + len(source.background)]), share, workers)
        self._background = batch_size - foreground
        self._batch_size = batch_size
        self._crop = crop
        self._mean = mean
        self._scale = np.float32(scale)
        self._mirror = mirror
        self._seed = seed

    def _read(self, draw: SampleDraw) -> tuple[Tensor, ...]:
        count = len(draw.samples)
        data, label = empty(count, CHANNELS, self._crop.size, self._crop.size), empty(count)
        windows, flips = self._draw(draw)
        label.numpy()[:] = [window.label for window in windows]
        self._workers.run(
            partial(self._cut, window, flip, out)
            for window, flip, out in zip(windows, flips.tolist(), data.numpy(), strict=True)
        )
        return data, label

    def _draw(self, draw: SampleDraw) -> tuple[list[ImageWindow], NDArray[np.int64]]:
        positions = draw.epochs * self.epoch + draw.samples
        is_foreground = positions % self._batch_size >= self._background
        rows = np.empty((len(positions), len(ImageWindow._fields)), np.int64)
        hashes = draw.hashes(self._seed, "window")
        for here, kind in ((is_foreground, self._source.foreground), (~is_foreground, self._source.background)):
            if here.any():
                rows[here] = kind[below(len(kind), hashes[here])]
        flips = np.zeros(len(positions), np.int64)
        if self._mirror:
            flips = below(2, draw.hashes(self._seed, "mirror"))
        return [ImageWindow(*row) for row in rows.tolist()], flips

    def _cut(self, window: ImageWindow, flip: int, out: NDArray[np.float32]) -> None:
        image = self._source.read(window.image)
        try:
            pixels, top, left = self._crop(image, window, bool(flip))
        except DataError as error:
            raise DataError(f"{self._source.name(window.image)}: {error}") from None
        inside = np.s_[:, top : top + pixels.shape[1], left : left + pixels.shape[2]]
        out[...] = 0
        out[inside] = (pixels - self._mean[inside]) * self._scale
