"""Decodes PNG, JPEG and other image files as Caffe (by OpenCV) does."""

from __future__ import annotations

import io

import numpy as np
from numpy.typing import NDArray

from bpt.errors import DataError, UserError

_CHANNELS = {1: "L", 3: "RGB"}
_NATIVE = {
    "1": "L",
    "L": "L",
    "LA": "RGBA",
    "P": "RGB",
    "RGB": "RGB",
    "RGBA": "RGBA",
    "CMYK": "RGB",
    "YCbCr": "RGB",
}
"""Pillow's mode of a file → the mode that OpenCV would give it."""


def decode_image(content: bytes, channels: int | None = None) -> NDArray[np.uint8]:
    """The image (C, H, W) in the bytes of an image file, channels in the order blue, green, red(, alpha).

    Args:
        channels: 1 (gray) or 3 (color) to convert to; ``None`` keeps what the file has.

    Raises:
        DataError: not an image file, or one with more than 8 bits a channel.
        UserError: Pillow is not installed.
    """
    try:
        from PIL import Image, UnidentifiedImageError  # noqa: PLC0415  optional package
    except ImportError:
        raise UserError("encoded images need the package Pillow: pip install 'bpt[image]'") from None
    try:
        with Image.open(io.BytesIO(content)) as image:
            mode = _CHANNELS[channels] if channels else _NATIVE.get(image.mode)
            if mode is None or image.mode not in _NATIVE:
                raise DataError(f"an image of Pillow's mode {image.mode}; only 8 bits a channel can be read")
            pixels = np.asarray(image.convert(mode))
    except UnidentifiedImageError:
        raise DataError(f"{len(content)} bytes that are no image file") from None
    except (OSError, ValueError, SyntaxError) as error:  # how Pillow reports damaged files
        raise DataError(f"a damaged image file: {error}") from None
    if pixels.ndim == 2:
        return pixels[np.newaxis]
    red_first = [2, 1, 0, 3][: pixels.shape[2]]
    return np.ascontiguousarray(pixels.transpose(2, 0, 1)[red_first])
