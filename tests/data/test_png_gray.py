"""Gray of color PNGs that say what their gamma is.

Where a comment says so, values are what a C program got that makes the calls of OpenCV 4.6 to libpng 1.6.39.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

import numpy as np
import pytest

import bpt.data.png_gray
from bpt.data.image import decode_image

RED = [(255, 0, 0)]
COLORS = [*RED, (0, 255, 0), (0, 0, 255), (10, 20, 30), (200, 100, 50), (90, 90, 91), (7, 7, 7)]
DEEP_COLORS = [
    (65535, 0, 0),
    (0, 65535, 0),
    (0, 0, 65535),
    (2571, 5142, 7713),
    (51500, 25750, 12875),
    (23125, 23130, 23392),
    (1859, 1859, 1859),
]


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def gama(value: int) -> bytes:
    return chunk(b"gAMA", struct.pack(">I", value))


def iccp(profile: bytes) -> bytes:
    return chunk(b"iCCP", b"a profile\0\0" + zlib.compress(profile, 0))


def png(
    pixels: Sequence[tuple[int, ...]], *chunks: bytes, bits: int = 8, color: int = 2, interlaced: bool = False
) -> bytes:
    """A row of pixels; an interlaced one has up to 2."""
    rows = [pixels[:1], pixels[1:]] if interlaced else [pixels]  # the first pass, and the sixth
    data = b"".join(b"\0" + np.array(row, f">u{bits // 8}").tobytes() for row in rows)
    header = struct.pack(">IIBBBBB", len(pixels), 1, bits, color, 0, 0, interlaced)
    image = chunk(b"IHDR", header) + b"".join(chunks) + chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + image


def gray(content: bytes) -> list[int]:
    decoded = decode_image(content, 1)
    assert decoded.shape[:2] == (1, 1)
    return list(decoded.ravel().tolist())


def test_a_gamma_of_a_half() -> None:
    """Linear light is value² / 255, rounded, and the way back is the root of gray · 255."""
    expected = [
        139,  # 9797 · 255 / 32768 = 76.2, and the root of 76 · 255 is 139.2; without a gamma it is 76
        196,  # 19234 · 255 / 32768 = 149.7, which is rounded to 150, and the root of 150 · 255 is 195.6
        86,  # 3737 · 255 / 32768 = 29.1, and the root of 29 · 255 is 85.99
        23,  # 100, 400 and 900 / 255 are rounded to 0, 2 and 4: (19234 · 2 + 3737 · 4) / 32768 = 1.6; root of 2 · 255
        135,  # 157, 39 and 10: 71; the root of 71 · 255 is 134.6
        90,  # 32, 32 and 32, and the root of 32 · 255 is 90.3
        7,  # gray already; by 49 / 255, which is 0, it were 0
    ]
    assert gray(png(COLORS, gama(50_000))) == expected


@pytest.mark.parametrize(
    ("gamma", "expected", "deep"),
    [  # the C program's
        (45_455, [147, 200, 95, 21, 137, 90, 7], [147, 200, 95, 19, 137, 90, 7]),
        (55_000, [131, 190, 77, 18, 133, 90, 7], [131, 191, 77, 18, 133, 90, 7]),
        (30_000, [177, 217, 133, 0, 146, 90, 7], [178, 218, 133, 0, 147, 90, 7]),
        (220_000, [18, 79, 2, 18, 119, 90, 7], [17, 79, 2, 17, 119, 90, 7]),
        (100_000, [76, 149, 29, 18, 124, 90, 7], [76, 150, 29, 18, 124, 90, 7]),
        # within 5 % of 1 a gamma is taken for 1, in the one direction or in both
        (105_000, [76, 149, 29, 18, 124, 90, 7], [76, 150, 29, 18, 124, 90, 7]),
        (95_239, [76, 149, 29, 18, 124, 90, 7], [76, 150, 29, 18, 124, 90, 7]),
        (95_000, [76, 150, 29, 15, 120, 85, 7], [76, 150, 29, 15, 120, 85, 7]),
        (94_999, [81, 154, 32, 17, 125, 90, 7], [81, 154, 32, 18, 125, 90, 7]),
        (105_263, [71, 146, 26, 16, 119, 85, 7], [71, 146, 25, 15, 120, 85, 7]),
        (105_264, [71, 146, 26, 18, 123, 90, 7], [71, 146, 25, 18, 124, 90, 7]),
    ],
)
def test_gammas(gamma: int, expected: list[int], deep: list[int]) -> None:
    assert gray(png(COLORS, gama(gamma))) == expected
    assert gray(png(DEEP_COLORS, gama(gamma), bits=16)) == deep
    transparent = [(*pixel, 9) for pixel in DEEP_COLORS]
    assert gray(png(transparent, gama(gamma), bits=16, color=6)) == deep


def test_sixteen_bits_by_hand() -> None:
    """Tables have 2048 entries, one for each of the upper 11 bits; 65535 · (entry / 2047)² is linear light."""
    # 2571 and so on are entries 80, 160 and 241: 100, 400 and 908; (9797 · 100 + 19234 · 400 + 3737 · 908) / 32768 is
    # 368, thus entry 11: 65535 · (11 / 2047)^0.5 = 4804 = 18.8 · 256.
    assert gray(png([(2571, 5142, 7713)], gama(50_000), bits=16)) == [18]


@pytest.mark.parametrize(("value", "expected"), [(0, 0), (128, 0), (160, 1), (65375, 254), (65408, 255), (65535, 255)])
def test_sixteen_bits_that_are_gray_already_are_rounded(value: int, expected: int) -> None:
    """By the bound between 0 and 257, which is 128 and thus entry 4 of 2048, and so on. Without a gamma 255 is 0."""
    assert gray(png([(value,) * 3], gama(50_000), bits=16)) == [expected]


def test_a_gamma_whose_reciprocal_is_not_exact() -> None:
    """3000 · 0.00033 is 0.99: bounds are (bound / 65535)^0.99. The C program's; 20000 / 257 is 77.8."""
    assert gray(png([(20_000,) * 3], gama(300_000_000), bits=16)) == [77]


@pytest.mark.parametrize(
    ("used", "expected"),
    [  # the C program's
        (11, [147, 200, 95, 19, 137, 90, 7]),
        (10, [147, 201, 95, 18, 137, 90, 7]),
        (9, [147, 200, 95, 15, 137, 89, 7]),
        (8, [147, 201, 95, 0, 137, 89, 7]),
        (5, [147, 201, 95, 0, 137, 89, 7]),
        (0, [147, 200, 95, 19, 137, 90, 7]),  # which is wrong
        (17, [147, 200, 95, 19, 137, 90, 7]),
    ],
)
def test_sixteen_bits_of_which_fewer_are_used(used: int, expected: list[int]) -> None:
    used_bits = chunk(b"sBIT", bytes([5, used, 5]))
    later = chunk(b"sBIT", bytes([11, 11, 11]))
    assert gray(png(DEEP_COLORS, used_bits, later, gama(45_455), bits=16)) == expected
    transparent = [(*pixel, 9) for pixel in DEEP_COLORS]
    used_bits = chunk(b"sBIT", bytes([5, used, 5, 16]))
    assert gray(png(transparent, gama(45_455), used_bits, bits=16, color=6)) == expected
    of_three = chunk(b"sBIT", bytes([5, 5, 5]))
    assert gray(png(transparent, of_three, gama(45_455), used_bits, bits=16, color=6)) == expected


NONE, HALF, SRGB, OTHER = 76, 139, 147, 146  # gray of red; the last ones by a gamma of 0.46, the C program's too
SRGB_CHUNK = chunk(b"sRGB", b"\0")
PROFILE = struct.pack(">I8x12s12x4s96x", 136, b"mntrRGB XYZ ", b"acsp")  # libpng looks at no more of one without tags


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        ((), NONE),
        ((SRGB_CHUNK,), SRGB),
        ((SRGB_CHUNK, gama(50_000)), SRGB),
        ((gama(50_000), SRGB_CHUNK), SRGB),
        ((SRGB_CHUNK, gama(46_000)), OTHER),  # near enough
        ((SRGB_CHUNK, gama(50_000), gama(46_000)), OTHER),
        ((gama(50_000), gama(46_000)), HALF),
        ((gama(50_000), gama(46_000), SRGB_CHUNK), HALF),
        ((gama(15), SRGB_CHUNK), NONE),
        ((gama(625_000_001), SRGB_CHUNK), NONE),
        ((gama(2**32 - 1), gama(50_000)), NONE),
        ((chunk(b"gAMA", bytes(5)), gama(50_000)), HALF),
        ((chunk(b"sRGB", b"\0\0"), gama(50_000)), HALF),
        ((chunk(b"sRGB", b"\4"), gama(50_000)), NONE),
        ((chunk(b"sRGB", b"\3"), gama(50_000)), SRGB),
        ((gama(46_000), SRGB_CHUNK, SRGB_CHUNK), SRGB),
        ((SRGB_CHUNK, SRGB_CHUNK, gama(46_000)), SRGB),
        ((chunk(b"PLTE", bytes(6)), gama(50_000)), NONE),  # out of place
        # profiles: not known, of gray, broken, too short to be looked at
        ((iccp(PROFILE), gama(50_000)), HALF),
        ((iccp(PROFILE.replace(b"RGB ", b"GRAY")), gama(50_000)), NONE),
        ((chunk(b"iCCP", b"a profile\0\0" + b"?" * 100), gama(50_000)), NONE),
        ((chunk(b"iCCP", b"a profile\0\0" + b"?" * 80), gama(50_000)), HALF),
        ((SRGB_CHUNK, iccp(PROFILE), gama(46_000)), SRGB),
    ],
)
def test_what_prevails(chunks: tuple[bytes, ...], expected: int) -> None:
    assert gray(png(RED, *chunks)) == [expected]


def test_known_profiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """A real one has 3,000 bytes and more."""
    monkeypatch.setattr(bpt.data.png_gray, "_SRGB_PROFILES", {(zlib.crc32(PROFILE), len(PROFILE))})
    assert gray(png(RED, iccp(PROFILE))) == [SRGB]
    assert gray(png(RED, gama(50_000), iccp(PROFILE))) == [SRGB]
    assert gray(png(RED, iccp(PROFILE), SRGB_CHUNK, gama(46_000))) == [SRGB]
    assert gray(png(RED, iccp(PROFILE[:-1] + b"!"))) == [NONE]


def test_interlaced() -> None:
    assert gray(png(COLORS[3:5], gama(50_000), interlaced=True)) == [23, 135]
    assert gray(png(DEEP_COLORS[3:5], gama(45_455), bits=16, interlaced=True)) == [19, 137]


def test_a_palette() -> None:
    palette = chunk(b"PLTE", np.array(COLORS, np.uint8).tobytes())
    indices = [(number,) for number in (6, 3, 0, 1)]
    assert gray(png(indices, gama(50_000), palette, color=3)) == [7, 23, 139, 196]


@pytest.mark.parametrize("bits", [8, 16])
def test_gray_and_color_are_not_changed(bits: int) -> None:
    top = 2**bits - 1
    assert gray(png([(top // 3,)], gama(50_000), bits=bits, color=0)) == [85]
    assert gray(png([(top // 3, 9)], gama(50_000), bits=bits, color=4)) == [85]
    assert decode_image(png([(top, 0, top // 3)], gama(50_000), bits=bits), 3).ravel().tolist() == [85, 0, 255]
