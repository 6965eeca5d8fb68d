"""Reads images as fractions of their largest value, as scikit-image does, which pycaffe's ``load_image`` calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bpt.base.errors import DataError
from bpt.data.image import GRAY_OF_16, ORIENTATION, both_bytes, deep_samples, with_image

if TYPE_CHECKING:
    from PIL.ImageFile import ImageFile

_COLORS = 3
_OF_16 = ";16"  # part of Pillow's pixel format of a file with 16 bits
_READ = frozenset(("1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr"))


def decode_fractions(content: bytes) -> NDArray[np.float32]:
    """Return the image (H, W, 3) in the bytes of an image file: red, green and blue, from 0 to 1.

    16-bit numbers are divided by 65535, and 8-bit numbers by 255; floats do not change. Gray is repeated, alpha is
    dropped, and an EXIF tag has no effect.

    Raises:
        DataError: as in ``decode_image``.
    """
    return with_image(content, lambda image: _fractions(image, content))


def _fractions(image: ImageFile, content: bytes) -> NDArray[np.float32]:
    stored = " ".join(str(tile[3]) for tile in image.tile)
    turn = image.getexif().get(ORIENTATION, 1) if image.format == "TIFF" else 1
    if image.mode == "F":
        values = np.asarray(image, np.float32)
    elif image.mode in GRAY_OF_16 and "I;32" not in stored:
        values = np.asarray(image).astype(np.float32) / np.float32(65535)
    elif image.mode not in _READ:
        raise DataError(f"an image of Pillow's mode {image.mode}; only 8 or 16 bits a channel, or floats, can be read")
    else:
        samples = _samples(image, content, stored)
        values = samples.astype(np.float32) / np.float32(np.iinfo(samples.dtype).max)
    values = _as_stored(values, turn)
    return values if values.ndim == _COLORS else np.repeat(values[..., np.newaxis], _COLORS, 2)


def _samples(image: ImageFile, content: bytes, stored: str) -> NDArray[np.uint8] | NDArray[np.uint16]:
    """Return red, green and blue (H, W, 3) in the file's own number of bits."""
    if image.format == "PNG":
        return deep_samples(image, content, turned=False)
    if image.format == "TIFF" and image.mode == "RGB" and _OF_16 in stored:
        upper, lower = both_bytes(image, content)
        samples: NDArray[np.uint16] = (upper.astype(np.uint16) << 8 | lower).astype(np.uint16)
        return samples
    return np.asarray(image.convert("RGB"))


def _as_stored(values: NDArray[np.float32], orientation: int) -> NDArray[np.float32]:
    """Undo Pillow's turn of a TIFF's ``values`` (H, W, …) by its tag, to get the order in the file."""
    if orientation in (5, 6, 7, 8):
        values = values.swapaxes(0, 1)
    if orientation in (3, 4, 7, 6):
        values = values[::-1]
    if orientation in (2, 3, 7, 8):
        values = values[:, ::-1]
    return np.ascontiguousarray(values)
