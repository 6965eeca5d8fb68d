"""Converts a color PNG to gray as OpenCV does by libpng: in linear light if the file has a gamma.

OpenCV 2.4 to 4 call ``png_set_rgb_to_gray`` with their own weights and leave the gamma to libpng, which finds it in the
file. This module does what libpng 1.6 does up to 1.6.44 (Debian 12 has 1.6.39, for example). Newer versions treat a
gamma in the same way, but read only the first gAMA, which any sRGB chunk overrides, and no profile. Version 1.2
truncated instead of rounding. libpng stops at a wrong cHRM or at some wrong profiles; this module does not check these.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

# Weights of red and green in 32768ths, truncated; blue has the rest.
_RED, _GREEN = 29900 * 32768 // 100000, 58700 * 32768 // 100000

# All gammas are in 100000ths, as in a file; the usual one is 1 / 2.2.
_ONE, _SRGB = 100_000, 45_455
_THRESHOLD = 5_000  # largest distance from 1 of a gamma that counts as 1
_LEAST, _MOST = 16, 625_000_000  # limits of a gamma in a file
_LAST_INTENT = 3  # largest rendering intent of an sRGB chunk

# CRC and length of the ICC profiles that libpng treats as an sRGB chunk: four of the ICC, three of Hewlett-Packard.
_SRGB_PROFILES = {
    (0x3B8772B9, 3048),
    (0x427EBB21, 3052),
    (0x306FD8AE, 60988),
    (0xBBEF7812, 60960),
    (0x5D5129CE, 3024),
    (0x182EA552, 3144),
    (0xF29E526D, 3144),
}
_LONGEST_PROFILE = max(length for _, length in _SRGB_PROFILES)
_SHORTEST_CHUNK = 92  # bytes of a chunk with a profile; shorter ones are ignored


def gray_of_color(samples: NDArray[np.uint8] | NDArray[np.uint16], content: bytes) -> NDArray[np.uint8]:
    """Convert red, green and blue (H, W, 3) of a PNG with 8 or 16 bits to 8-bit gray (H, W).

    16-bit samples become 16-bit gray, of which the upper 8 bits count.

    Args:
        content: the bytes of the file; Pillow has read it, so the lengths of the chunks before the pixels are right.
    """
    gamma = _gamma(content) or _ONE
    deep = samples.dtype == np.uint16
    if not (_is_significant(gamma) or _is_significant(_reciprocal(gamma))):
        gray = (_weighted(samples) + 2**14) >> 23 if deep else _weighted(samples) >> 15
    else:
        gray = _gray_of_16(samples, gamma, _unused_bits(content)) if deep else _gray_of_8(samples, gamma)
    return gray.astype(np.uint8)


def _weighted(samples: NDArray[np.unsignedinteger] | NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the gray of (H, W, 3) times 32768, which is below 2^31, because the sum of the weights is 32768."""
    red, green, blue = np.moveaxis(samples.astype(np.int32), 2, 0)
    gray: NDArray[np.int32] = _RED * red + _GREEN * green + (32768 - _RED - _GREEN) * blue
    return gray


def _has_no_color(samples: NDArray[np.unsignedinteger]) -> NDArray[np.bool_]:
    """Return a mask of the pixels without color, whose value libpng keeps, without a detour through linear light."""
    same: NDArray[np.bool_] = (samples == samples[..., :1]).all(axis=2)
    return same


def _gray_of_8(samples: NDArray[np.unsignedinteger], gamma: int) -> NDArray[np.int32]:
    to_linear = _reciprocal(gamma)
    mixed = (_weighted(_curve_of_8(to_linear)[samples]) + 2**14) >> 15
    colored = _curve_of_8(_reciprocal(to_linear))[mixed]
    gray: NDArray[np.int32] = np.where(_has_no_color(samples), samples[..., 0], colored)
    return gray


def _curve_of_8(gamma: int) -> NDArray[np.int32]:
    """Return (256,) 255 · (value / 255)^gamma, rounded."""
    values = np.arange(256, dtype=np.int32)
    if not _is_significant(gamma):
        return values
    curve: NDArray[np.int32] = np.floor(255 * (values / 255) ** (gamma * 1e-5) + 0.5).astype(np.int32)
    return curve


def _gray_of_16(samples: NDArray[np.unsignedinteger], gamma: int, unused: int) -> NDArray[np.int32]:
    """Return the gray values of 16-bit pixels; libpng's tables leave out the last ``unused`` bits."""
    to_linear = _reciprocal(gamma)
    mixed = (_weighted(_curve_of_16(to_linear, unused)[samples >> unused]) + 2**14) >> 15
    colored = _curve_of_16(_reciprocal(to_linear), unused)[mixed >> unused] >> 8
    uncolored = _upper_8(gamma, unused)[samples[..., 0] >> unused]
    gray: NDArray[np.int32] = np.where(_has_no_color(samples), uncolored, colored)
    return gray


def _curve_of_16(gamma: int, unused: int) -> NDArray[np.int32]:
    """Return (2^(16 - unused),) the power of each value, rounded, in 16 bits."""
    values = np.arange(1 << 16 - unused, dtype=np.int64)
    most = len(values) - 1
    if not _is_significant(gamma):
        return ((values * 65535 + len(values) // 2) // most).astype(np.int32)
    curve: NDArray[np.int32] = np.floor(65535 * (values * (1 / most)) ** (gamma * 1e-5) + 0.5).astype(np.int32)
    return curve


def _upper_8(gamma: int, unused: int) -> NDArray[np.int64]:
    """Return (2^(16 - unused),) the nearest 8-bit value to each value, after conversion to linear light and back."""
    most = (1 << 16 - unused) - 1
    between = np.arange(255) * 257 + 128
    product = math.floor(gamma * 1e-5 * _reciprocal(gamma) + 0.5)  # about 1
    bounds = np.floor(65535 * (between / 65535) ** (product * 1e-5) + 0.5).astype(np.int64)
    return np.searchsorted((bounds * most + 32768) // 65535 + 1, np.arange(most + 1), side="right")


def _is_significant(gamma: int) -> bool:
    return abs(gamma - _ONE) > _THRESHOLD


def _reciprocal(gamma: int) -> int:
    return math.floor(1e10 / gamma + 0.5)


def _chunks(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield name and data of the chunks before the palette and the pixels; later ones are invalid."""
    at = 8
    while at + 8 <= len(content):
        length, name = struct.unpack_from(">I4s", content, at)
        if name in (b"PLTE", b"IDAT"):
            return
        yield name, content[at + 8 : at + 8 + length]
        at += length + 12


def _gamma(content: bytes) -> int:
    """Return the gamma in the file, or 0; as libpng does, stop at the first invalid chunk."""
    gamma, from_gama, is_srgb = 0, False, False
    for name, data in _chunks(content):
        if name == b"gAMA" and len(data) == 4:
            value = int.from_bytes(data, "big")
            if from_gama or not _LEAST <= value <= _MOST:
                return gamma
            if not is_srgb or not _is_significant(math.floor(gamma * _ONE / value + 0.5)):
                gamma, from_gama = value, True
        elif name == b"sRGB" and len(data) == 1:
            if is_srgb or data[0] > _LAST_INTENT:
                return gamma
            gamma, is_srgb = _SRGB, True
        elif name == b"iCCP" and len(data) >= _SHORTEST_CHUNK:
            profile = _profile(data)
            if is_srgb or not profile:
                return gamma
            if (zlib.crc32(profile), len(profile)) in _SRGB_PROFILES:
                gamma, is_srgb = _SRGB, True
    return gamma


def _profile(data: bytes) -> bytes:
    """Return the profile in an iCCP chunk, cut at the longest known length; empty if it is not an RGB profile."""
    _, _, packed = data.partition(b"\0")
    try:
        profile = zlib.decompressobj().decompress(packed[1:], _LONGEST_PROFILE + 1)
    except zlib.error:
        return b""
    return profile if profile[16:20] == b"RGB " else b""


def _unused_bits(content: bytes) -> int:
    """Return how many of 16 bits libpng's tables leave out: 5 for 8-bit output, or up to 8 if sBIT allows."""
    samples = 4 if content[25] & 4 else 3  # IHDR's color type: whether there is alpha
    for name, data in _chunks(content):
        if name == b"sBIT" and len(data) == samples and all(1 <= bits <= 16 for bits in data):
            return min(max(16 - max(data[:3]), 5), 8)
    return 5
