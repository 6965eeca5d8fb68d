"""Decodes PNG, JPEG and other image files as Caffe (by OpenCV) does."""

from __future__ import annotations

import io
import math
import re
import warnings
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bpt.errors import BptError, DataError, UserError

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageFile import ImageFile

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
_GRAY_OF_16 = ("I;16", "I")  # Pillow's modes of a gray PNG of 16 bits; the latter before 11.3

# Files of other formats may make Pillow run programs.
_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "PPM", "TIFF", "WEBP", "JPEG2000", "SUN")
_PIL = re.compile(r"PIL\.")
_ORIENTATION = 0x0112  # EXIF's tag
_SMALL, _DENSEST = 2**24, 10_000  # pixels that any file may have, and how many more for each of its bytes
# Of red and green in 32768ths; blue has the rest. libpng's, by which OpenCV reads a color PNG as gray: it truncates.
_RED, _GREEN = 29900 * 32768 // 100000, 58700 * 32768 // 100000


def import_pillow() -> ModuleType:
    """The module ``PIL.Image``; a UserError that says how to install it if it is missing."""
    try:
        import PIL.Image  # noqa: PLC0415  optional package
    except ImportError:
        raise UserError("images need the package Pillow: pip install 'bpt[image]'") from None
    return PIL.Image


def _silence(pillow: ModuleType) -> None:
    """Let Pillow not warn of damaged tags and of large images: these are decoded or refused, with words of our own."""
    # catch_warnings would change what all threads do, and images are decoded in many.
    for category in (UserWarning, pillow.DecompressionBombWarning):
        if ("ignore", None, category, _PIL, 0) not in warnings.filters:
            warnings.filterwarnings("ignore", category=category, module=_PIL.pattern)


def decode_image(content: bytes, channels: int | None = None) -> NDArray[np.uint8]:
    """The image (C, H, W) in the bytes of an image file, channels in the order blue, green, red(, alpha).

    It is a view of pixels that lie next to each other, and may be read-only. If it is converted, it is also turned as
    its file's EXIF tag says, as OpenCV does since 3.1. Of 16 bits a channel, which a PNG may have, the upper 8 are
    taken, as OpenCV does; gray is made of color before that.

    Args:
        channels: 1 (gray) or 3 (color) to convert to; ``None`` keeps what the file has.

    Raises:
        DataError: not an image file, a damaged one, one of another format than PNG with more than 8 bits a channel,
            or one with more pixels than ``PIL.Image.MAX_IMAGE_PIXELS``, which a few bytes may ask for.
        UserError: Pillow is not installed.
    """
    pillow = import_pillow()
    try:
        _silence(pillow)
        with pillow.open(io.BytesIO(content), formats=_FORMATS) as image:
            if image.width * image.height > (pillow.MAX_IMAGE_PIXELS or math.inf):
                raise pillow.DecompressionBombError
            pixels: NDArray[np.uint8] = _pixels(image, channels, content)
    except BptError:
        raise
    except pillow.UnidentifiedImageError:
        raise DataError(f"{len(content)} bytes that are no image file") from None
    except pillow.DecompressionBombError:
        raise DataError(f"an image of more than {pillow.MAX_IMAGE_PIXELS} pixels, the most that are decoded") from None
    except Exception as error:  # Pillow raises errors of all kinds at damaged files
        raise DataError(f"a damaged image file: {error}") from None
    if pixels.ndim == 2:
        return pixels[np.newaxis]
    planes: NDArray[np.uint8] = pixels.transpose(2, 0, 1)
    return planes[::-1] if len(planes) == 3 else planes.take((2, 1, 0, 3), 0)


def _pixels(image: ImageFile, channels: int | None, content: bytes) -> NDArray[np.uint8]:
    """(H, W) of a gray image, else (H, W, C). Memory is taken only after a look at what the file says of itself."""
    width, height = image.size
    if width * height > _SMALL + _DENSEST * len(content):
        raise DataError(f"a damaged image file: it says that it has {width} × {height} pixels, in {len(content)} bytes")
    if image.format == "PNG" and image.mode in _GRAY_OF_16:
        gray = (np.asarray(_upright(image) if channels else image) >> 8).astype(np.uint8)
        return gray if channels != 3 else np.repeat(gray[..., np.newaxis], 3, 2)
    if image.format == "TIFF" and ";16" in _stored(image):
        raise DataError("a TIFF of 16 bits a channel; only a PNG may have more than 8")
    if image.mode not in _NATIVE:
        raise DataError(f"an image of Pillow's mode {image.mode}; only 8 bits a channel can be read")
    if channels == 1 and image.format == "JPEG":
        image.draft("L", image.size)  # what JPEG has for gray, instead of what its colors would give
    if not channels:
        native: NDArray[np.uint8] = np.asarray(_converted(image, _NATIVE[image.mode]))
        return native
    if channels == 1 and image.format == "PNG" and image.mode not in ("1", "L", "LA"):
        return _gray_of_color(image, content)
    converted: NDArray[np.uint8] = np.asarray(_upright(_converted(image, _CHANNELS[channels])))
    return converted


def _gray_of_color(image: ImageFile, content: bytes) -> NDArray[np.uint8]:
    """Of a PNG, as libpng makes it: 8 bits are truncated, 16 rounded to 16, of which the upper 8 are taken."""
    if not _stored(image).startswith(("RGB;16", "RGBA;16")):  # gray with alpha is, as it were, color of 8 bits
        return (_weighted(_rgb(image)) >> 15).astype(np.uint8)
    with import_pillow().open(io.BytesIO(content), formats=("PNG",)) as lower:
        # Pillow keeps one byte of each sample: the first one, or the second one of what is little-endian.
        lower.tile = [(*tile[:3], str(tile[3]).replace(";16B", ";16L")) for tile in lower.tile]
        samples = _rgb(image) << 8 | _rgb(lower)
    return ((_weighted(samples) + 2**14) >> 23).astype(np.uint8)  # below 2^31, as the weights are 2^15 in all


def _rgb(image: Image) -> NDArray[np.int32]:
    """(H, W, 3)."""
    return np.asarray(_upright(_converted(image, "RGB")), np.int32)


def _weighted(samples: NDArray[np.int32]) -> NDArray[np.int32]:
    """The gray of (H, W, 3), times 32768."""
    red, green, blue = np.moveaxis(samples, 2, 0)
    gray: NDArray[np.int32] = _RED * red + _GREEN * green + (32768 - _RED - _GREEN) * blue
    return gray


def _stored(image: ImageFile) -> str:
    """How a PNG or a TIFF has its pixels, as in ``RGB;16B``. Pillow itself reads that as 8 bits, unless it is gray."""
    return " ".join(str(tile[3]) for tile in image.tile)


def _converted(image: Image, mode: str) -> Image:
    return image if image.mode == mode else image.convert(mode)


def _upright(image: Image) -> Image:
    if image.getexif().get(_ORIENTATION, 1) == 1:
        return image
    import PIL.ImageOps  # noqa: PLC0415  optional package

    turned: Image = PIL.ImageOps.exif_transpose(image)
    return turned
