"""Batches of windows that are drawn at random, foreground and background."""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from bpt.context import derive_seed
from bpt.data.batches import Batches, empty
from bpt.data.counter_hash import below, hash_samples
from bpt.data.sampler import Draw, Sampler
from bpt.data.window_crop import WindowCrop
from bpt.data.window_source import CHANNELS, Window, WindowSource
from bpt.data.workers import ALONE, Workers
from bpt.errors import DataError
from bpt.share import Share


class WindowBatches(Batches):
    """Batches of (data (B, 3, size, size), label (B,)).

    The last ``foreground`` of each ``batch_size`` samples are foreground windows, those before background ones, each
    drawn at random from all of its kind. Which one, and whether it is mirrored, depends on ``seed`` and the sample's
    position in the stream alone. The stream has no epochs in truth; one counts as many samples as there are windows.

    Args:
        batch_size: the text's, of which the whole batch may be a multiple.
        foreground: so many of them are foreground.
        mean: subtracted from each crop: (3, size, size). Empty pixels of a crop stay 0.
        scale: factor, after that.
        mirror: half of the windows are flipped left to right.
        workers: who decodes and warps; closed together with the source.
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
        super().__init__(Sampler([len(source.foreground) + len(source.background)]), share)
        self._source = source
        self._background = batch_size - foreground
        self._batch_size = batch_size
        self._crop = crop
        self._mean = mean
        self._scale = np.float32(scale)
        self._mirror = mirror
        self._seed = seed
        self._workers = workers

    def _read(self, draw: Draw) -> tuple[Tensor, ...]:
        count = len(draw.samples)
        data, label = empty(count, CHANNELS, self._crop.size, self._crop.size), empty(count)
        windows, flips = self._draw(draw)
        label.numpy()[:] = [window.label for window in windows]
        self._workers.run(
            partial(self._cut, window, flip, out)
            for window, flip, out in zip(windows, flips.tolist(), data.numpy(), strict=True)
        )
        return data, label

    def _draw(self, draw: Draw) -> tuple[list[Window], NDArray[np.int64]]:
        positions = draw.epochs * self.epoch + draw.samples
        is_foreground = positions % self._batch_size >= self._background
        rows = np.empty((len(positions), len(Window._fields)), np.int64)
        hashes = hash_samples(derive_seed(self._seed, "window"), draw.epochs, draw.samples)
        for here, kind in ((is_foreground, self._source.foreground), (~is_foreground, self._source.background)):
            if here.any():
                rows[here] = kind[below(len(kind), hashes[here])]
        flips = np.zeros(len(positions), np.int64)
        if self._mirror:
            flips = below(2, hash_samples(derive_seed(self._seed, "mirror"), draw.epochs, draw.samples))
        return [Window(*row) for row in rows.tolist()], flips

    def _cut(self, window: Window, flip: int, out: NDArray[np.float32]) -> None:
        image = self._source.read(window.image)
        try:
            pixels, top, left = self._crop(image, window, bool(flip))
        except DataError as error:
            raise DataError(f"{self._source.name(window.image)}: {error}") from None
        inside = np.s_[:, top : top + pixels.shape[1], left : left + pixels.shape[2]]
        out[...] = 0
        out[inside] = (pixels - self._mean[inside]) * self._scale

    def close(self) -> None:
        self._workers.close()
        self._source.close()
