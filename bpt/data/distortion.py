"""Random changes of colours by SSD's ``distort_param``."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bpt.base.errors import UserError
from bpt.config.proto import bpt_pb2 as pb
from bpt.data.image import Pixels
from bpt.data.sample_draws import SampleDraws

Floats = NDArray[np.float32]


class Distortion:
    """The random distortion of an image's colours, as in SSD.

    Brightness is added, contrast and saturation are factors, and hue is turned, in half degrees as in OpenCV. Each has
    a probability and a random amount. Contrast comes before or after saturation and hue, with equal probability. Last,
    the channels are permuted.

    Raises:
        UserError: limits are not in order.
    """

    def __init__(self, param: pb.DistortionParameter) -> None:
        self._param = param
        for name in ("contrast", "saturation"):
            low, high = getattr(param, f"{name}_lower"), getattr(param, f"{name}_upper")
            if getattr(param, f"{name}_prob") > 0 and not 0 <= low <= high:
                raise UserError(f"distort_param: 0 ≤ {name}_lower {low:g} ≤ {name}_upper {high:g} does not hold")
        for name in ("brightness", "hue"):
            if getattr(param, f"{name}_delta") < 0:
                raise UserError(f"distort_param: {name}_delta must be at least 0")

    def __call__(self, image: Pixels, draws: SampleDraws) -> Pixels:
        """Return a distorted copy of ``image``, whose channels are blue, green, red."""
        param = self._param
        contrast_first = draws.happens(0.5)
        brighter = draws.uniform(-1, 1) * param.brightness_delta if draws.happens(param.brightness_prob) else 0.0
        contrast = self._factor("contrast", draws)
        saturation = self._factor("saturation", draws)
        turned = draws.uniform(-1, 1) * param.hue_delta if draws.happens(param.hue_prob) else 0.0
        pixels = _rounded(image.astype(np.float32) + np.float32(brighter))
        if contrast_first:
            pixels = _rounded(pixels * np.float32(contrast))
        if len(image) == 3 and (saturation != 1 or turned):
            pixels = _rounded(_recoloured(pixels, saturation, turned))
        if not contrast_first:
            pixels = _rounded(pixels * np.float32(contrast))
        if draws.happens(param.random_order_prob):
            pixels = pixels[draws.order(len(pixels))]
        return pixels.astype(np.uint8)

    def _factor(self, name: str, draws: SampleDraws) -> float:
        if not draws.happens(getattr(self._param, f"{name}_prob")):
            return 1.0
        return draws.uniform(getattr(self._param, f"{name}_lower"), getattr(self._param, f"{name}_upper"))


def _rounded(pixels: Floats) -> Floats:
    return np.rint(pixels).clip(0, 255)


def _recoloured(pixels: Floats, saturation: float, turned: float) -> Floats:
    """Return blue, green and red with the HSV saturation times a factor, and the hue turned by half degrees."""
    value, least = pixels.max(0), pixels.min(0)
    chroma = value - least
    blue, green, red = pixels
    safe = np.where(chroma > 0, chroma, 1)
    sector = np.where(  # one of six sectors of the hue, from red on
        value == red,
        (green - blue) / safe % 6,
        np.where(value == green, (blue - red) / safe + 2, (red - green) / safe + 4),
    )
    chroma = np.minimum(chroma * np.float32(saturation), value)
    sector = (sector + np.float32(turned / 30)) % 6
    # The distance of each channel from the value depends on its distance from the sectors in which it is the largest.
    places = (sector[None] + np.array((1, 3, 5), np.float32)[:, None, None]) % 6
    shares = np.minimum(places, 4 - places).clip(0, 1)
    recoloured: Floats = value - chroma * shares
    return recoloured
