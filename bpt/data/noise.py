"""Adds noise to images by SSD's ``noise_param``."""

from __future__ import annotations

import io

import numpy as np
from numpy.typing import NDArray

from bpt.base.errors import UserError
from bpt.config.proto import bpt_pb2 as pb
from bpt.data.image import Pixels, import_pillow
from bpt.data.sample_draws import SampleDraws

_LUMA = np.array((0.114, 0.587, 0.299), np.float32)  # weights of blue, green, red (ITU-R BT.601)
_STEP = 64  # distance of the values of a posterised image
_BLUR, _SIGMA = 3, 1.5  # radius and standard deviation of the blur in pixels


class Noise:
    """The noise that ``noise_param`` adds to an image.

    The steps are, in SSD's order: remove colours, blur, equalise the histogram, compress as a JPEG, erode, posterise,
    invert, change single pixels. ``prob`` is the probability; without it, noise is always added.
    """

    def __init__(self, param: pb.NoiseParameter) -> None:
        self._param = param

    def __call__(self, image: Pixels, draws: SampleDraws) -> Pixels:
        """Return a noisy copy of ``image`` (C, H, W), whose channels are blue, green, red, or gray alone."""
        param = self._param
        if param.HasField("prob") and not draws.happens(param.prob):
            return image
        if param.decolorize and len(image) == 3:
            image = np.repeat(_rounded(_luma(image))[None], 3, 0)
        if param.gauss_blur:
            image = _blurred(image)
        if param.hist_eq:
            image = _equalised(image)
        if param.jpeg > 0:
            image = _through_jpeg(image, param.jpeg)
        if param.erode:
            image = _eroded(image)
        if param.posterize:
            image = image // _STEP * _STEP + _STEP // 2
        if param.inverse:
            image = 255 - image
        if param.saltpepper:
            image = self._salted(image, draws)
        return image

    def _salted(self, image: Pixels, draws: SampleDraws) -> Pixels:
        param = self._param.saltpepper_param
        values = np.array(param.value or [0], np.float32).astype(np.uint8)
        if len(values) not in (1, len(image)):
            raise UserError(f"saltpepper_param: give value once, or once for each of {len(image)} channels")
        _, height, width = image.shape
        number = int(param.fraction * height * width)
        places = (draws.uniforms(number) * height * width).astype(np.int64)
        salted = image.reshape(len(image), -1).copy()
        salted[:, places] = values[:, None]
        noisy: Pixels = salted.reshape(image.shape)
        return noisy


def _rounded(pixels: NDArray[np.float32]) -> Pixels:
    return np.rint(pixels).clip(0, 255).astype(np.uint8)


def _luma(image: Pixels) -> NDArray[np.float32]:
    luma: NDArray[np.float32] = np.tensordot(_LUMA, image.astype(np.float32), 1)
    return luma


def _blurred(image: Pixels) -> Pixels:
    places = np.arange(-_BLUR, _BLUR + 1)
    weights = np.exp(-(places**2) / (2 * _SIGMA**2)).astype(np.float32)
    weights /= weights.sum()
    blurred = image.astype(np.float32)
    for axis in (1, 2):
        around = [(0, 0)] * 3
        around[axis] = (_BLUR, _BLUR)
        padded = np.pad(blurred, around, mode="reflect" if blurred.shape[axis] > _BLUR else "edge")
        taps = (np.take(padded, np.arange(blurred.shape[axis]) + tap, axis) for tap in range(len(weights)))
        blurred = sum((weight * tap for weight, tap in zip(weights, taps, strict=True)), np.zeros_like(blurred))
    return _rounded(blurred)


def _equalised(image: Pixels) -> Pixels:
    """Equalise the histogram of the gray values; the differences of the channels from gray do not change."""
    gray = _rounded(_luma(image)) if len(image) == 3 else image[0]
    counts = np.bincount(gray.ravel(), minlength=256).cumsum()
    first = counts[gray.min()]
    table = (counts - first) * 255.0 / max(1, counts[-1] - first)
    return _rounded(image + (table[gray] - gray).astype(np.float32))


def _through_jpeg(image: Pixels, quality: float) -> Pixels:
    pillow = import_pillow()
    planes = image[::-1].transpose(1, 2, 0) if len(image) == 3 else image[0]
    file = io.BytesIO()
    pillow.fromarray(np.ascontiguousarray(planes)).save(file, "JPEG", quality=int(quality))
    with pillow.open(file) as read:
        back = np.asarray(read)
    return back.transpose(2, 0, 1)[::-1] if back.ndim == 3 else back[None]


def _eroded(image: Pixels) -> Pixels:
    """Return the minimum of each pixel and its four neighbours."""
    padded = np.pad(image, ((0, 0), (1, 1), (1, 1)), mode="edge")
    height, width = image.shape[1:]
    shifted = (padded[:, y : y + height, x : x + width] for y, x in ((1, 1), (0, 1), (2, 1), (1, 0), (1, 2)))
    eroded: Pixels = np.minimum.reduce(list(shifted))
    return eroded
