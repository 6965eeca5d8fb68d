"""Decodes PNG, JPEG and other image files, and resizes them bilinearly, as Caffe (by OpenCV) does."""

from __future__ import annotations

import io
import math
import re
import struct
import warnings
from functools import lru_cache
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bpt.base.errors import BptError, DataError, UserError
from bpt.base.formats import HEAD, recognise
from bpt.data.png_gray import gray_of_color

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
_BITS = 8
_CODE = b"\xff\x4f\xff\x51"  # with which the code of a JPEG 2000 starts, after a header or at once
_SMALL, _DENSEST = 2**24, 10_000  # pixels that any file may have, and how many more for each of its bytes


def import_pillow() -> ModuleType:
    """Return the module ``PIL.Image``; a UserError that says how to install it if it is missing."""
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
    """Return the image (C, H, W) in the bytes of an image file, channels in the order blue, green, red(, alpha).

    It is a view of pixels that lie next to each other, and may be read-only. If it is converted, it is also turned as
    its file's EXIF tag says, as OpenCV does since 3.1. Of 16 bits a channel, which a PNG may have, the upper 8 are
    taken, as OpenCV does; gray is made of color before that, as :mod:`bpt.data.png_gray` says.

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
        size = "1 byte that is" if len(content) == 1 else f"{len(content)} bytes that are"
        found = recognise(content[:HEAD], len(content))
        but = f" but {found.what}{f'; {found.remedy}' if found.remedy else ''}" if found else ""
        raise DataError(f"{size} no image file{but}" if content else "an empty file") from None
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
    if (bits := _bits(image, content)) > _BITS:
        raise DataError(f"a {image.format} of {bits} bits a channel; only a PNG may have more than 8")
    if image.mode not in _NATIVE:
        raise DataError(f"an image of Pillow's mode {image.mode}; only 8 bits a channel can be read")
    if channels == 1 and image.format == "JPEG":
        image.draft("L", image.size)  # what JPEG has for gray, instead of what its colors would give
    if not channels:
        native: NDArray[np.uint8] = np.asarray(_converted(image, _NATIVE[image.mode]))
        return native
    if channels == 1 and image.format == "PNG" and image.mode not in ("1", "L", "LA"):
        return gray_of_color(_samples(image, content), content)
    converted: NDArray[np.uint8] = np.asarray(_upright(_converted(image, _CHANNELS[channels])))
    return converted


def _bits(image: ImageFile, content: bytes) -> int:
    """Return how many a channel has, in those formats of which Pillow would take the upper ones."""
    if image.format == "TIFF":
        return 16 if ";16" in _stored(image) else _BITS
    if image.format == "PPM":
        settings = image.tile[0][3]  # the largest value follows the mode, unless it is one that needs no decoder
        largest = settings[1] if isinstance(settings, tuple) else 255
        return 16 if image.mode == "I" or largest > 255 else _BITS
    if image.format == "JPEG2000":
        start = content.index(_CODE) + len(_CODE)
        (channels,) = struct.unpack_from(">H", content, start + 36)
        return 1 + max(bits & 127 for bits in content[start + 38 : start + 38 + 3 * channels : 3])
    return _BITS


def _samples(image: ImageFile, content: bytes) -> NDArray[np.uint8] | NDArray[np.uint16]:
    """(H, W, 3): red, green and blue of a PNG, in as many bits as it has."""
    deep = _stored(image).startswith(("RGB;16", "RGBA;16"))  # gray with alpha is, as it were, color of 8 bits
    upper: NDArray[np.uint8] = np.asarray(_upright(_converted(image, "RGB")))
    if not deep:
        return upper
    with import_pillow().open(io.BytesIO(content), formats=("PNG",)) as other:
        # Pillow keeps one byte of each sample: the first one, or the second one of what is little-endian.
        other.tile = [(*tile[:3], str(tile[3]).replace(";16B", ";16L")) for tile in other.tile]
        lower: NDArray[np.uint8] = np.asarray(_upright(_converted(other, "RGB")))
    samples: NDArray[np.uint16] = (upper.astype(np.uint16) << 8 | lower).astype(np.uint16)
    return samples


def _stored(image: ImageFile) -> str:
    """Return how a PNG or a TIFF has its pixels, as in ``RGB;16B``. Pillow itself reads that as 8 bits, unless it is gray."""
    return " ".join(str(tile[3]) for tile in image.tile)


def _converted(image: Image, mode: str) -> Image:
    return image if image.mode == mode else image.convert(mode)


def _upright(image: Image) -> Image:
    if image.getexif().get(_ORIENTATION, 1) == 1:
        return image
    import PIL.ImageOps  # noqa: PLC0415  optional package

    turned: Image = PIL.ImageOps.exif_transpose(image)
    return turned


Pixels = NDArray[np.uint8]
_ONE = np.float32(2048)  # a weight of 1: OpenCV computes with integers (imgproc/resize.cpp)


def resize(image: Pixels, height: int, width: int) -> Pixels:
    """``image`` (C, H, W) as (C, ``height``, ``width``), by bilinear interpolation between the centres of its pixels.

    Nothing is smoothed where an image shrinks (Pillow's BILINEAR does that). To the last bit what ``cv::resize`` with
    INTER_LINEAR makes of 8-bit images. Quickest if pixels lie next to each other, as in a decoded image, blue or red
    first; the result is like that, too.
    """
    channels, old_height, old_width = image.shape
    if (old_height, old_width) == (height, width):
        return image
    if image.strides[0] < 0:
        return resize(image[::-1], height, width)[::-1]
    wide = _along_rows(np.ascontiguousarray(image.transpose(1, 2, 0)), width)
    tops, parts = _places(old_height, height)
    upper, lower = _weights(parts)
    result = wide[tops.clip(0, old_height - 1)]
    below = wide[(tops + 1).clip(0, old_height - 1)]
    for sums, weights in ((result, upper), (below, lower)):
        sums *= weights[:, np.newaxis]
        sums >>= 16
    result += below
    result += 2
    result >>= 2
    resized: Pixels = result.astype(np.uint8).reshape(height, width, channels).transpose(2, 0, 1)
    return resized


def _along_rows(pixels: Pixels, width: int) -> NDArray[np.int32]:
    """Return the rows of ``pixels`` (H, W, C) interpolated, in 128ths: (H, ``width`` · C)."""
    height, old_width, channels = pixels.shape
    lefts, parts = _places(old_width, width)
    # Beyond a border there is the border's pixel.
    parts = np.where((lefts < 0) | (lefts >= old_width - 1), np.float32(0), parts)
    rows = pixels.reshape(height, -1)
    left, right = _weights(parts)
    wide = np.multiply(rows[:, _columns(lefts, pixels)], left.repeat(channels), dtype=np.int32)
    wide += np.multiply(rows[:, _columns(lefts + 1, pixels)], right.repeat(channels), dtype=np.int32)
    wide >>= 4
    return wide


def _columns(places: NDArray[np.int64], pixels: Pixels) -> NDArray[np.int64]:
    """Return where the channels of the pixels at ``places`` of a row stand; beyond a border, those of the border's."""
    _, width, channels = pixels.shape
    firsts: NDArray[np.int64] = places.clip(0, width - 1)[:, np.newaxis] * channels
    return (firsts + np.arange(channels)).ravel()


@lru_cache(maxsize=256)
def _places(old: int, new: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return for each new pixel of an axis the old one at or before it, perhaps -1, and how far it lies behind that one."""
    at = ((np.arange(new) + 0.5) * (1 / (new / old)) - 0.5).astype(np.float32)
    before = np.floor(at)
    return before.astype(np.int64), at - before


def _weights(parts: NDArray[np.float32]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return the weights of the pixels before and behind."""
    return np.rint((1 - parts) * _ONE).astype(np.int32), np.rint(parts * _ONE).astype(np.int32)
