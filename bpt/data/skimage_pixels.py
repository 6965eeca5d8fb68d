"""Images as fractions of their largest value, as scikit-image reads them, which pycaffe's ``load_image`` calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bpt.base.errors import DataError
from bpt.data.image import GRAY_OF_16, deep_samples, with_image

if TYPE_CHECKING:
    from PIL.ImageFile import ImageFile

_COLORS = 3
_READ = frozenset(("1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr"))


def decode_fractions(content: bytes) -> NDArray[np.float32]:
    """Return the image (H, W, 3) in the bytes of an image file: red, green and blue, from 0 to 1.

    Numbers of 16 bits are divided by 65535, those of 8 by 255; floats stay as they are. Gray is repeated, alpha is
    dropped, and an EXIF tag turns nothing.

    Raises:
        DataError: see ``decode_image``.
    """
    return with_image(content, lambda image: _fractions(image, content))


def _fractions(image: ImageFile, content: bytes) -> NDArray[np.float32]:
    stored = " ".join(str(tile[3]) for tile in image.tile)
    if image.mode == "F":
        values = np.asarray(image, np.float32)
    elif image.mode in GRAY_OF_16 and "I;32" not in stored:
        values = np.asarray(image).astype(np.float32) / np.float32(65535)
    elif image.mode not in _READ:
        raise DataError(f"an image of Pillow's mode {image.mode}; only 8 or 16 bits a channel, or floats, can be read")
    else:
        samples = (
            deep_samples(image, content, turned=False) if image.format == "PNG" else np.asarray(image.convert("RGB"))
        )
        values = samples.astype(np.float32) / np.float32(np.iinfo(samples.dtype).max)
    return values if values.ndim == _COLORS else np.repeat(values[..., np.newaxis], _COLORS, 2)
