"""Decodes PNG, JPEG and other image files, and resizes them bilinearly, as Caffe (by OpenCV) does."""

from __future__ import annotations

import io
import math
import re
import struct
import sys
import warnings
from collections.abc import Callable
from functools import lru_cache
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from bpt.base.errors import BptError, DataError, UserError
from bpt.base.formats import HEAD, recognise
from bpt.data.opencv_pixels import gray_of, opencv_color, read_pnm, tiff_of_16
from bpt.data.png_gray import gray_of_color

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageFile import ImageFile


T = TypeVar("T")
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
GRAY_OF_16 = ("I;16", "I;16B", "I;16L", "I")  # Pillow's modes of gray of 16 bits; the last one of a PNG before 11.3
_DEEP_GRAY = ("PNG", "TIFF", "JPEG2000")

# Files of other formats may make Pillow run programs.
_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "PPM", "TIFF", "WEBP", "JPEG2000", "SUN")
_PIL = re.compile(r"PIL\.")
ORIENTATION = 0x0112  # EXIF's tag
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

    It is a view of pixels that lie next to each other, and may be read-only. If it is converted, it has the pixels that
    OpenCV's ``imread`` gives: turned as its file's EXIF tag says, 16 bits a channel made 8, and gray of color as
    OpenCV's reader of the format makes it (:mod:`bpt.data.opencv_pixels`, :mod:`bpt.data.png_gray`).

    Args:
        channels: 1 (gray) or 3 (color) to convert to; ``None`` keeps what the file has.

    Raises:
        DataError: not an image file, a damaged one, one with numbers that OpenCV does not read as a picture, or one
            with more pixels than ``PIL.Image.MAX_IMAGE_PIXELS``, which a few bytes may ask for.
        UserError: Pillow is not installed.
    """
    pixels = with_image(content, lambda image: _pixels(image, channels, content))
    if pixels.ndim == 2:
        return pixels[np.newaxis]
    planes: NDArray[np.uint8] = pixels.transpose(2, 0, 1)
    return planes[::-1] if len(planes) == 3 else planes.take((2, 1, 0, 3), 0)


def with_image(content: bytes, make: Callable[[ImageFile], T]) -> T:
    """Return what ``make`` makes of the image in the bytes of an image file; for errors see ``decode_image``."""
    pillow = import_pillow()
    try:
        _silence(pillow)
        with pillow.open(io.BytesIO(content), formats=_FORMATS) as image:
            if image.width * image.height > (pillow.MAX_IMAGE_PIXELS or math.inf):
                raise pillow.DecompressionBombError
            _check_size(image, len(content))
            return make(image)
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


def _check_size(image: ImageFile, size: int) -> None:
    """Look at what a file of ``size`` bytes says of itself, before memory is taken for it."""
    width, height = image.size
    if width * height > _SMALL + _DENSEST * size:
        raise DataError(f"a damaged image file: it says that it has {width} × {height} pixels, in {size} bytes")


def _pixels(image: ImageFile, channels: int | None, content: bytes) -> NDArray[np.uint8]:
    """Return (H, W) of a gray image, else (H, W, C)."""
    if (odd := _of_odd_bits(image, channels, content)) is not None:
        return _with_channels(odd, channels)
    if (bits := _bits(image, content)) > _BITS:
        raise DataError(f"a {image.format} of {bits} bits a channel; this format may have 8, or 16 of gray")
    if image.mode not in _NATIVE:
        raise DataError(f"an image of Pillow's mode {image.mode}; only 8 bits a channel can be read")
    if channels == 1 and image.format == "JPEG":
        image.draft("L", image.size)  # what JPEG has for gray, instead of what its colors would give
    if not channels:
        color = opencv_color(image, _stored(image)) if image.mode == "CMYK" else None
        return np.asarray(_converted(image, _NATIVE[image.mode])) if color is None else color
    if channels == 1 and image.format == "PNG" and image.mode not in ("1", "L", "LA"):
        return gray_of_color(deep_samples(image, content), content)
    if image.mode not in ("1", "L", "LA"):
        form, color = image.format or "", opencv_color(image, _stored(image))
        color = color if color is not None else np.asarray(_converted(image, "RGB"))
        turned = _upright_as(image, color)
        return turned if channels == 3 else gray_of(turned, form)
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


def _of_odd_bits(image: ImageFile, channels: int | None, content: bytes) -> NDArray[np.uint8] | None:
    """Return 8 bits a channel of an image that has another number of them, if OpenCV reads it; ``None``: it has 8."""
    if image.format == "PPM":
        return read_pnm(content, image.size)
    stored = _stored(image)
    if image.format in _DEEP_GRAY and image.mode in GRAY_OF_16 and "I;32" not in stored:
        return (np.asarray(_upright(image) if channels else image) >> 8).astype(np.uint8)
    if image.format == "TIFF" and image.mode == "RGB" and ";16" in stored:
        return tiff_of_16(*both_bytes(image, content))
    return None


def _with_channels(pixels: NDArray[np.uint8], channels: int | None) -> NDArray[np.uint8]:
    """Return (H, W) or (H, W, 3) with so many channels, gray as OpenCV's own code makes it."""
    if channels == 3 and pixels.ndim == 2:
        return np.repeat(pixels[..., np.newaxis], 3, 2)
    return gray_of(pixels, "") if channels == 1 and pixels.ndim == 3 else pixels


def deep_samples(image: ImageFile, content: bytes, turned: bool = True) -> NDArray[np.uint8] | NDArray[np.uint16]:
    """Return red, green and blue (H, W, 3) of a PNG, in as many bits as it has; ``turned`` as its EXIF tag says."""
    turn = _upright if turned else _as_it_is
    deep = _stored(image).startswith(("RGB;16", "RGBA;16"))  # gray with alpha is, as it were, color of 8 bits
    upper: NDArray[np.uint8] = np.asarray(turn(_converted(image, "RGB")))
    if not deep:
        return upper
    with import_pillow().open(io.BytesIO(content), formats=("PNG",)) as other:
        # Pillow keeps one byte of each sample: the first one, or the second one of what is little-endian.
        other.tile = [_other_bytes(tile) for tile in other.tile]
        lower: NDArray[np.uint8] = np.asarray(turn(_converted(other, "RGB")))
    samples: NDArray[np.uint16] = (upper.astype(np.uint16) << 8 | lower).astype(np.uint16)
    return samples


def both_bytes(image: ImageFile, content: bytes) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return the upper and the lower bytes (H, W, 3) of a TIFF of 16 bits a channel."""
    with import_pillow().open(io.BytesIO(content), formats=("TIFF",)) as other:
        other.tile = [_other_bytes(tile) for tile in other.tile]
        return np.asarray(_upright(image)), np.asarray(_upright(other))


def _other_bytes(tile: Any) -> Any:
    """Return what Pillow decodes to take the other byte of each sample."""
    settings = _other_order(tile[3])
    return tile._replace(args=settings) if hasattr(tile, "_replace") else (*tile[:3], settings)  # older: a tuple


def _other_order(settings: object) -> object:
    """Return the settings of a decoder that takes the other one of two bytes."""
    if isinstance(settings, tuple):
        return tuple(_other_order(each) for each in settings)
    if not isinstance(settings, str):
        return settings
    first, order, rest = settings.partition(";16")
    own = "L" if sys.byteorder == "little" else "B"
    return settings if not order else f"{first};16{'B' if (rest or 'B').replace('N', own) == 'L' else 'L'}"


def _stored(image: ImageFile) -> str:
    """Return the pixel format of a PNG or TIFF, such as ``RGB;16B``. Pillow reads it as 8 bits unless it is gray."""
    return " ".join(str(tile[3]) for tile in image.tile)


def _converted(image: Image, mode: str) -> Image:
    return image if image.mode == mode else image.convert(mode)


def _upright_as(image: Image, pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return ``pixels`` (H, W, 3) of ``image``, turned as its EXIF tag says."""
    orientation = image.getexif().get(ORIENTATION, 1)
    if orientation == 1:
        return pixels
    other = import_pillow().fromarray(pixels)
    other.getexif()[ORIENTATION] = orientation
    turned: NDArray[np.uint8] = np.asarray(_upright(other))
    return turned


def _as_it_is(image: Image) -> Image:
    return image


def _upright(image: Image) -> Image:
    if image.getexif().get(ORIENTATION, 1) == 1:
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
    """Return for each new pixel of an axis the old pixel at or before it (-1: none), and its distance from that."""
    at = ((np.arange(new) + 0.5) * (1 / (new / old)) - 0.5).astype(np.float32)
    before = np.floor(at)
    return before.astype(np.int64), at - before


def _weights(parts: NDArray[np.float32]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return the weights of the pixels before and behind."""
    return np.rint((1 - parts) * _ONE).astype(np.int32), np.rint(parts * _ONE).astype(np.int32)
