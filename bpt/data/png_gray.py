"""Gray of a color PNG as OpenCV has it from libpng: in linear light where the file says what its gamma is.

OpenCV 2.4 to 4 call ``png_set_rgb_to_gray`` with weights of their own and leave the gamma to libpng, which looks for it
in the file. What is done here is what libpng 1.6 does up to 1.6.44; Debian 12, for one, has 1.6.39. Newer ones make the
same of a gamma, but only look at the first gAMA, which any sRGB chunk outdoes, and at no profile; 1.2 truncated.
What libpng checks of cHRM and of other profiles, to look no further if it is wrong, is not checked here.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

# Of red and green in 32768ths, truncated; blue has the rest.
_RED, _GREEN = 29900 * 32768 // 100000, 58700 * 32768 // 100000

# All gammas are in 100000ths, as in a file, where the usual one is 1 / 2.2.
_ONE, _SRGB = 100_000, 45_455
_THRESHOLD = 5_000  # how far from 1 a gamma is taken to be 1
_LEAST, _MOST = 16, 625_000_000  # that a file may have
_LAST_INTENT = 3  # of an sRGB chunk

# CRC and length of the ICC profiles that libpng takes for an sRGB chunk: four of the ICC's, three of Hewlett-Packard's.
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
_SHORTEST_CHUNK = 92  # with a profile; shorter ones are passed over


def gray_of_color(samples: NDArray[np.uint8] | NDArray[np.uint16], content: bytes) -> NDArray[np.uint8]:
    """(H, W) of the red, green and blue (H, W, 3) of a PNG, in as many bits as it has, 8 or 16.

    16 bits are made 16 of gray, of which the upper 8 are taken.

    Args:
        content: the bytes of the file, which Pillow has read: each chunk before the pixels is as long as it says.
    """
    gamma = _gamma(content) or _ONE
    deep = samples.dtype == np.uint16
    if not (_is_significant(gamma) or _is_significant(_reciprocal(gamma))):
        gray = (_weighted(samples) + 2**14) >> 23 if deep else _weighted(samples) >> 15
    else:
        gray = _gray_of_16(samples, gamma, _unused_bits(content)) if deep else _gray_of_8(samples, gamma)
    return gray.astype(np.uint8)


def _weighted(samples: NDArray[np.unsignedinteger] | NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the gray of (H, W, 3), times 32768: below 2^31, as the weights are 32768 in all."""
    red, green, blue = np.moveaxis(samples.astype(np.int32), 2, 0)
    gray: NDArray[np.int32] = _RED * red + _GREEN * green + (32768 - _RED - _GREEN) * blue
    return gray


def _has_no_color(samples: NDArray[np.unsignedinteger]) -> NDArray[np.bool_]:
    """Return the pixels whose value libpng keeps; converting to linear light and back could change it."""
    same: NDArray[np.bool_] = (samples == samples[..., :1]).all(axis=2)
    return same


def _gray_of_8(samples: NDArray[np.unsignedinteger], gamma: int) -> NDArray[np.int32]:
    to_linear = _reciprocal(gamma)
    mixed = (_weighted(_curve_of_8(to_linear)[samples]) + 2**14) >> 15
    colored = _curve_of_8(_reciprocal(to_linear))[mixed]
    gray: NDArray[np.int32] = np.where(_has_no_color(samples), samples[..., 0], colored)
    return gray


def _curve_of_8(gamma: int) -> NDArray[np.int32]:
    """(256,): 255 · (value / 255)^gamma, rounded."""
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
    """(2^bits,), where bits are 16 - unused: the value's power, rounded, in 16 bits."""
    values = np.arange(1 << 16 - unused, dtype=np.int64)
    most = len(values) - 1
    if not _is_significant(gamma):
        return ((values * 65535 + len(values) // 2) // most).astype(np.int32)
    curve: NDArray[np.int32] = np.floor(65535 * (values * (1 / most)) ** (gamma * 1e-5) + 0.5).astype(np.int32)
    return curve


def _upper_8(gamma: int, unused: int) -> NDArray[np.int64]:
    """(2^bits,): the 8 bits nearest to each value, by the bounds between them, after the way to linear and back."""
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
    """Name and data of those before the palette and the pixels: later ones are out of place."""
    at = 8
    while at + 8 <= len(content):
        length, name = struct.unpack_from(">I4s", content, at)
        if name in (b"PLTE", b"IDAT"):
            return
        yield name, content[at + 8 : at + 8 + length]
        at += length + 12


def _gamma(content: bytes) -> int:
    """Return what the file says of it, or 0. After something wrong libpng looks at no further chunk."""
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
    """Return how many of 16 bits the tables leave out: 5, as libpng does for 8-bit output; up to 8 if sBIT allows."""
    samples = 4 if content[25] & 4 else 3  # IHDR's color type: whether there is alpha
    for name, data in _chunks(content):
        if name == b"sBIT" and len(data) == samples and all(1 <= bits <= 16 for bits in data):
            return min(max(16 - max(data[:3]), 5), 8)
    return 5
