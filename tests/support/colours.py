"""Colours as people see them: contrast, distance, and what readers with colour blindness see."""

from __future__ import annotations

import math
from collections.abc import Sequence

Rgb = tuple[float, float, float]

# Machado, Oliveira and Fernandes, 2009, "A Physiologically-based Model for Simulation of Color Vision Deficiency",
# severity 1.0, on linear RGB.
MACHADO = {
    "protanopia": (
        (0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900),
    ),
}  # fmt: skip


def linear(colour: str) -> Rgb:
    """Linear red, green and blue, 0 to 1, of ``#rrggbb``."""
    return linear_of([int(colour[start : start + 2], 16) for start in (1, 3, 5)])


def linear_of(values: Sequence[float]) -> Rgb:
    """Linear red, green and blue, 0 to 1, of those of sRGB, 0 to 255."""
    shares = (value / 255 for value in values)
    red, green, blue = (each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in shares)
    return red, green, blue


def luminance(rgb: Rgb) -> float:
    return 0.2126 * rgb[0] + 0.7152 * rgb[1] + 0.0722 * rgb[2]


def contrast_of(first: Sequence[float], second: Sequence[float]) -> float:
    """The contrast ratio of WCAG 2.1, 1 to 21, of two colours of sRGB, 0 to 255."""
    low, high = sorted(luminance(linear_of(values)) for values in (first, second))
    return (high + 0.05) / (low + 0.05)


def seen_with(rgb: Rgb, kind: str) -> Rgb:
    """The linear colour that a reader with the colour blindness ``kind``, a key of MACHADO, sees."""
    red, green, blue = (
        min(max(sum(factor * value for factor, value in zip(row, rgb, strict=True)), 0.0), 1.0) for row in MACHADO[kind]
    )
    return red, green, blue


def lab(rgb: Rgb) -> Rgb:
    """CIE L*a*b* of a linear colour, for the white of sRGB (D65)."""
    red, green, blue = rgb
    xyz = (
        (0.4124564 * red + 0.3575761 * green + 0.1804375 * blue) / 0.95047,
        0.2126729 * red + 0.7151522 * green + 0.0721750 * blue,
        (0.0193339 * red + 0.1191920 * green + 0.9503041 * blue) / 1.08883,
    )
    x, y, z = (each ** (1 / 3) if each > 216 / 24389 else (24389 / 27 * each + 16) / 116 for each in xyz)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def distance(first: Rgb, second: Rgb) -> float:
    """CIEDE2000 of two colours in L*a*b* (Sharma, Wu and Dalal, 2005)."""
    (l1, a1, b1), (l2, a2, b2) = first, second
    mean = ((math.hypot(a1, b1) + math.hypot(a2, b2)) / 2) ** 7
    stretch = 1 + 0.5 * (1 - math.sqrt(mean / (mean + 25.0**7)))
    a1, a2 = stretch * a1, stretch * a2
    c1, c2 = math.hypot(a1, b1), math.hypot(a2, b2)
    h1, h2 = math.degrees(math.atan2(b1, a1)) % 360, math.degrees(math.atan2(b2, a2)) % 360
    turn = 0.0 if not c1 * c2 else (h2 - h1 + 180) % 360 - 180
    hue = 2 * math.sqrt(c1 * c2) * math.sin(math.radians(turn / 2))
    lightness, chroma = (l1 + l2) / 2, (c1 + c2) / 2
    middle = h1 + h2 if not c1 * c2 else (h1 + turn / 2) % 360
    weight = (
        1
        - 0.17 * math.cos(math.radians(middle - 30))
        + 0.24 * math.cos(math.radians(2 * middle))
        + 0.32 * math.cos(math.radians(3 * middle + 6))
        - 0.20 * math.cos(math.radians(4 * middle - 63))
    )
    of_l = 1 + 0.015 * (lightness - 50) ** 2 / math.sqrt(20 + (lightness - 50) ** 2)
    of_c, of_h = 1 + 0.045 * chroma, 1 + 0.015 * chroma * weight
    bend = -math.sin(math.radians(60 * math.exp(-(((middle - 275) / 25) ** 2))))
    bend *= 2 * math.sqrt(chroma**7 / (chroma**7 + 25.0**7))
    parts = (l2 - l1) / of_l, (c2 - c1) / of_c, hue / of_h
    return math.sqrt(sum(each * each for each in parts) + bend * parts[1] * parts[2])
