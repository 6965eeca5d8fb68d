"""Pixels of OpenCV's readers where Pillow's differ: gray from color, CMYK, alpha, and unusual numbers of bits.

Recorded pixels of OpenCV 4.10 and 5.0 verify all of it (``tests/data/recordings``).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bpt.base.errors import DataError

if TYPE_CHECKING:
    from PIL.ImageFile import ImageFile

Pixels = NDArray[np.uint8]

# Weights of red, green and blue, and the shift of their sum in bits.
_OF_CODECS = (4899, 9617, 1868), 14  # imgcodecs/src/utils.cpp, which most readers use
_OF_CVTCOLOR = (9798, 19235, 3735), 15  # imgproc: cvtColor
_BY_CVTCOLOR = frozenset(("WEBP", "JPEG2000", "GIF"))

_SPACE = rb"(?:\s|#[^\n]*\n)+"
_PNM = re.compile(rb"P([2356])" + _SPACE + rb"(\d+)" + _SPACE + rb"(\d+)" + _SPACE + rb"(\d+)\s")
_PLAIN = 255  # the largest value of a file that Pillow does not scale
_LARGEST = 65535


def gray_of(pixels: Pixels, form: str) -> Pixels:
    """Convert red, green and blue (H, W, 3) to gray (H, W) as OpenCV's reader of the format ``form`` does."""
    weights, bits = _OF_CVTCOLOR if form in _BY_CVTCOLOR else _OF_CODECS
    sums = pixels.astype(np.int32) @ np.array(weights, np.int32)
    return ((sums + (1 << (bits - 1))) >> bits).astype(np.uint8)


def opencv_color(image: ImageFile, stored: str) -> Pixels | None:
    """Return the color (H, W, 3) of an image for which OpenCV's differs from Pillow's, or ``None`` for all others.

    Args:
        stored: the file's pixel format in Pillow's words.
    """
    if image.mode == "CMYK":
        return (_jpeg_cmyk if image.format == "JPEG" else _tiff_cmyk)(np.asarray(image).astype(np.int32))
    if image.format == "TIFF" and image.mode == "RGBA":
        values = np.asarray(image).astype(np.int32)
        return ((values[..., :3] * values[..., 3:] + 127) // 255).astype(np.uint8)  # libtiff multiplies by alpha
    if image.format == "BMP" and stored.startswith(("BGR;15", "BGR;16", "('BGR;15", "('BGR;16")):
        green = 0xFC if "BGR;16" in stored else 0xF8
        color: Pixels = np.asarray(image.convert("RGB"))
        return np.bitwise_and(color, np.array((0xF8, green, 0xF8), np.uint8))  # OpenCV leaves the low bits 0
    return None


def _jpeg_cmyk(values: NDArray[np.int32]) -> Pixels:
    """Return the color of a JPEG in CMYK: OpenCV uses the numbers of the file, which Pillow inverts."""
    stored = 255 - values
    black = stored[..., 3:]
    return (black - ((255 - stored[..., :3]) * black >> 8)).astype(np.uint8)


def _tiff_cmyk(values: NDArray[np.int32]) -> Pixels:
    return ((255 - values[..., 3:]) * (255 - values[..., :3]) // 255).astype(np.uint8)


def tiff_of_16(upper: Pixels, lower: Pixels) -> Pixels:
    """Round the 16 bits of a color TIFF to 8 as libtiff does."""
    values = upper.astype(np.int32) << 8 | lower
    return ((values + 128) // 257).astype(np.uint8)


def read_pnm(content: bytes, size: tuple[int, int]) -> Pixels | None:
    """Return the pixels (H, W) or (H, W, 3) of a PGM or PPM whose largest value is not 255; ``None`` for all others.

    OpenCV does not scale by that value. If it is above 255, OpenCV keeps the upper bytes of 16 bits.

    Raises:
        DataError: the file has too few pixels.
    """
    found = _PNM.match(content)
    if not found or int(found[4]) == _PLAIN or not 0 < int(found[4]) <= _LARGEST:
        return None
    kind, deep = found[1], int(found[4]) > _PLAIN
    channels = 3 if kind in b"36" else 1
    count = size[0] * size[1] * channels
    if kind in b"56":
        values = np.frombuffer(content[found.end() : found.end() + count * (1 + deep)], ">u2" if deep else "u1")
    else:
        values = np.array([int(word) for word in content[found.end() :].split(maxsplit=count)[:count]])
    if values.size < count:
        raise DataError(f"a damaged image file: it has {values.size} of {count} numbers")
    pixels = (values >> 8 if deep else values).astype(np.uint8)
    return pixels.reshape((size[1], size[0], channels)[: 3 if channels == 3 else 2])
