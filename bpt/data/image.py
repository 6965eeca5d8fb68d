"""Decodes PNG, JPEG and other image files."""

from __future__ import annotations

import io
import math
import re
import struct
import sys
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from bpt.base.errors import BptError, DataError, UserError
from bpt.base.formats import HEAD, recognise
from bpt.data.opencv_pixels import gray_of, opencv_color, read_pnm, tiff_of_16
from bpt.data.pillow_pixels import pixels_of
from bpt.data.png_gray import gray_of_color

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageFile import ImageFile


T = TypeVar("T")
Pixels = NDArray[np.uint8]
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
"""Pillow's mode of a file → the mode that corresponds to OpenCV's result."""
GRAY_OF_16 = ("I;16", "I;16B", "I;16L", "I")  # Pillow's modes of 16-bit gray; "I" is that of a PNG before 11.3
_DEEP_GRAY = ("PNG", "TIFF", "JPEG2000")

# For other formats Pillow may run external programs.
_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "PPM", "TIFF", "WEBP", "JPEG2000", "SUN")
_PIL = re.compile(r"PIL\.")
ORIENTATION = 0x0112  # EXIF's tag
_BITS = 8
_CODE = b"\xff\x4f\xff\x51"  # start of a JPEG 2000 codestream, at the start of a file or after a header
_SMALL, _DENSEST = 2**24, 10_000  # pixels allowed in any file, and further pixels for each of its bytes


def import_pillow() -> ModuleType:
    """Return the module ``PIL.Image``; raise a UserError that says how to install it if it is missing."""
    try:
        import PIL.Image  # noqa: PLC0415  optional package
    except ImportError:
        raise UserError("images need the package Pillow: pip install 'bpt[image]'") from None
    return PIL.Image


def _silence(pillow: ModuleType) -> None:
    """Silence Pillow's warnings of damaged tags and large images, which bpt decodes or refuses with its own words."""
    # catch_warnings would affect all threads, and many of them decode images.
    for category in (UserWarning, pillow.DecompressionBombWarning):
        if ("ignore", None, category, _PIL, 0) not in warnings.filters:
            warnings.filterwarnings("ignore", category=category, module=_PIL.pattern)


def decode_image(content: bytes, channels: int | None = None) -> NDArray[np.uint8]:
    """Return the image (C, H, W) in the bytes of an image file, channels in the order blue, green, red(, alpha).

    The array is a view of interleaved pixels, and may be read-only. A converted image has the pixels of OpenCV's
    ``imread``: it is turned by the file's EXIF tag, 16-bit channels become 8-bit, and gray of a color image is that of
    OpenCV's reader for the format (:mod:`bpt.data.opencv_pixels`, :mod:`bpt.data.png_gray`).

    Args:
        channels: number of channels to convert to, 1 (gray) or 3 (color); ``None`` keeps those of the file.

    Raises:
        DataError: this is not an image file, it is damaged, OpenCV does not read its numbers as an image, or it has
            more than ``PIL.Image.MAX_IMAGE_PIXELS`` pixels, which a few bytes may announce.
        UserError: Pillow is not installed.
    """
    pixels = with_image(content, lambda image: _pixels(image, channels, content))
    if pixels.ndim == 2:
        return pixels[np.newaxis]
    planes: NDArray[np.uint8] = pixels.transpose(2, 0, 1)
    return planes[::-1] if len(planes) == 3 else planes.take((2, 1, 0, 3), 0)


def with_image(content: bytes, make: Callable[[ImageFile], T]) -> T:
    """Call ``make`` with the image in the bytes of an image file, and return its result; raise as ``decode_image``."""
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
    """Refuse a file of ``size`` bytes that announces too many pixels, before it takes memory."""
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
        image.draft("L", image.size)  # JPEG's own luma, not gray made from colors
    if not channels:
        color = opencv_color(image, _stored(image)) if image.mode == "CMYK" else None
        return pixels_of(_converted(image, _NATIVE[image.mode])) if color is None else color
    if channels == 1 and image.format == "PNG" and image.mode not in ("1", "L", "LA"):
        return gray_of_color(deep_samples(image, content), content)
    if image.mode not in ("1", "L", "LA"):
        form, color = image.format or "", opencv_color(image, _stored(image))
        color = color if color is not None else pixels_of(_converted(image, "RGB"))
        turned = _upright_as(image, color)
        return turned if channels == 3 else gray_of(turned, form)
    converted: NDArray[np.uint8] = np.asarray(_upright(_converted(image, _CHANNELS[channels])))
    return converted


def _bits(image: ImageFile, content: bytes) -> int:
    """Return the bits of a channel in a format of which Pillow keeps only the upper 8; 8 for all others."""
    if image.format == "TIFF":
        return 16 if ";16" in _stored(image) else _BITS
    if image.format == "PPM":
        settings = image.tile[0][3]  # (mode, largest), or a name if no decoder runs
        largest = settings[1] if isinstance(settings, tuple) else 255
        return 16 if image.mode == "I" or largest > 255 else _BITS
    if image.format == "JPEG2000":
        start = content.index(_CODE) + len(_CODE)
        (channels,) = struct.unpack_from(">H", content, start + 36)
        return 1 + max(bits & 127 for bits in content[start + 38 : start + 38 + 3 * channels : 3])
    return _BITS


def _of_odd_bits(image: ImageFile, channels: int | None, content: bytes) -> NDArray[np.uint8] | None:
    """Return an image of more or fewer bits a channel, if OpenCV reads it, with 8 bits; ``None``: it has 8 bits."""
    if image.format == "PPM":
        return read_pnm(content, image.size)
    stored = _stored(image)
    if image.format in _DEEP_GRAY and image.mode in GRAY_OF_16 and "I;32" not in stored:
        return (np.asarray(_upright(image) if channels else image) >> 8).astype(np.uint8)
    if image.format == "TIFF" and image.mode == "RGB" and ";16" in stored:
        return tiff_of_16(*both_bytes(image, content))
    return None


def _with_channels(pixels: NDArray[np.uint8], channels: int | None) -> NDArray[np.uint8]:
    """Convert pixels (H, W) or (H, W, 3) to ``channels``; gray is that of OpenCV's own code."""
    if channels == 3 and pixels.ndim == 2:
        return np.repeat(pixels[..., np.newaxis], 3, 2)
    return gray_of(pixels, "") if channels == 1 and pixels.ndim == 3 else pixels


def deep_samples(image: ImageFile, content: bytes, turned: bool = True) -> NDArray[np.uint8] | NDArray[np.uint16]:
    """Return red, green and blue (H, W, 3) of a PNG in its own number of bits; ``turned``: apply its EXIF tag."""
    turn = _upright if turned else _as_it_is
    deep = _stored(image).startswith(("RGB;16", "RGBA;16"))  # gray with alpha counts as 8-bit color
    upper: NDArray[np.uint8] = np.asarray(turn(_converted(image, "RGB")))
    if not deep:
        return upper
    with import_pillow().open(io.BytesIO(content), formats=("PNG",)) as other:
        # Pillow keeps one byte of each sample: the first one or, of little-endian samples, the second one.
        other.tile = [_other_bytes(tile) for tile in other.tile]
        lower: NDArray[np.uint8] = np.asarray(turn(_converted(other, "RGB")))
    samples: NDArray[np.uint16] = (upper.astype(np.uint16) << 8 | lower).astype(np.uint16)
    return samples


def both_bytes(image: ImageFile, content: bytes) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return the upper and the lower bytes (H, W, 3) of a TIFF with 16 bits a channel."""
    with import_pillow().open(io.BytesIO(content), formats=("TIFF",)) as other:
        other.tile = [_other_bytes(tile) for tile in other.tile]
        return np.asarray(_upright(image)), np.asarray(_upright(other))


def _other_bytes(tile: Any) -> Any:
    """Return a tile of Pillow's that decodes the other byte of each sample."""
    settings = _other_order(tile[3])
    return tile._replace(args=settings) if hasattr(tile, "_replace") else (*tile[:3], settings)  # older: a tuple


def _other_order(settings: object) -> object:
    """Return the settings of a decoder that keeps the other one of two bytes."""
    if isinstance(settings, tuple):
        return tuple(_other_order(each) for each in settings)
    if not isinstance(settings, str):
        return settings
    first, order, rest = settings.partition(";16")
    own = "L" if sys.byteorder == "little" else "B"
    return settings if not order else f"{first};16{'B' if (rest or 'B').replace('N', own) == 'L' else 'L'}"


def _stored(image: ImageFile) -> str:
    """Return the pixel format of a PNG or TIFF, such as ``RGB;16B``; Pillow reads it as 8 bits unless it is gray."""
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
