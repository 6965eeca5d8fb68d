"""Colour jitter: random brightness, contrast, saturation and hue of images (torchvision: ColorJitter)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]
Floats = NDArray[np.float32]
_OF_BGR = np.array([0.114, 0.587, 0.299], np.float32).reshape(3, 1, 1)


def jitter(
    image: Pixels, brightness: float, contrast: float, saturation: float, hue: float, draws: Sequence[float]
) -> Pixels:
    """Change the colours of ``image`` (C, H, W) in the order of the arguments, and round once at the end.

    Factors are in [1 - setting, 1 + setting], and the hue turns by [-hue, hue] of a circle. Saturation and hue do not
    change gray images.

    Args:
        draws: four numbers in [0, 1).
    """
    factors = [1 + setting * (2 * d - 1) for setting, d in zip((brightness, contrast, saturation), draws, strict=False)]
    turn = hue * (2 * draws[3] - 1)
    colours = len(image) == 3
    if not (brightness or contrast or (colours and (saturation or hue))):
        return image
    x = image.astype(np.float32)
    if brightness:
        x = (x * np.float32(factors[0])).clip(0, 255)
    if contrast:
        mean = (_gray(x) if colours else x).mean()
        x = (mean + np.float32(factors[1]) * (x - mean)).clip(0, 255)
    if saturation and colours:
        gray = _gray(x)
        x = (gray + np.float32(factors[2]) * (x - gray)).clip(0, 255)
    if hue and colours:
        x = turned_hue(x, turn)
    rounded: Pixels = np.rint(x).astype(np.uint8)
    return rounded


def _gray(x: Floats) -> Floats:
    """Return the luma (1, H, W) of an image of blue, green and red."""
    gray: Floats = (x * _OF_BGR).sum(0, keepdims=True)
    return gray


def turned_hue(x: Floats, turn: float) -> Floats:
    """Return an image of blue, green and red with its hue turned on the circle of HSV by ``turn`` whole turns."""
    blue, green, red = x
    value, low = x.max(0), x.min(0)
    chroma = value - low
    safe = np.where(chroma == 0, 1, chroma)
    sector = np.where(
        value == red,
        (green - blue) / safe % 6,
        np.where(value == green, (blue - red) / safe + 2, (red - green) / safe + 4),
    )
    sector = (sector + 6 * turn) % 6

    def channel(offset: int) -> Floats:
        k = (offset + sector) % 6
        found: Floats = value - chroma * np.minimum(np.minimum(k, 4 - k), 1).clip(0)
        return found

    return np.stack([channel(1), channel(3), channel(5)]).astype(np.float32)
