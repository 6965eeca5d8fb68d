"""Image files of all formats that are read."""

from __future__ import annotations

import io
import random
import struct
import zlib
from functools import cache

import numpy as np
from PIL import Image

from bpt.data.image import decode_image
from bpt.data.opencv_resize import resize
from tests.fuzz import seeds
from tests.fuzz.engine import MIB, Target
from tests.fuzz.mutations import mutate_bytes

_FORMATS = {
    "PNG": ("1", "L", "LA", "P", "RGB", "RGBA", "I;16"),
    "JPEG": ("L", "RGB", "CMYK"),
    "BMP": ("1", "L", "P", "RGB"),
    "GIF": ("L", "P"),
    "PPM": ("1", "L", "RGB"),
    "TIFF": ("1", "L", "P", "RGB", "RGBA", "CMYK"),
    "WEBP": ("RGB", "RGBA"),
    "JPEG2000": ("L", "RGB", "RGBA"),
}


@cache
def _images() -> tuple[bytes, ...]:
    """Small images of each format and mode; JPEG and PNG, which data sets are made of, more often."""
    pixels = np.random.default_rng(0).integers(0, 256, (9, 7, 3), np.uint8)
    found: list[bytes] = []
    for form, modes in _FORMATS.items():
        for mode in modes:
            image = Image.fromarray(pixels)
            image = image.convert("L").convert("I").convert("I;16") if mode == "I;16" else image.convert(mode)
            exif = Image.Exif()
            exif[0x0112] = 6
            for options in ({}, {"exif": exif}, {"progressive": True}) if form in ("JPEG", "PNG") else ({},):
                content = io.BytesIO()
                image.save(content, form, **options)
                found += [content.getvalue()] * (2 if form in ("JPEG", "PNG") else 1)
    return (*found, *seeds.files("data/images/*.png"))


class Images(Target):
    """Images decoded, in each number of channels, and resized."""

    name = "image"
    suffix = ".image"
    short = 400
    memory = 1200 * MIB  # of as many pixels as Pillow decodes, in color

    def case(self, rng: random.Random) -> bytes:
        case = mutate_bytes(rng, _images())
        return _mended(case) if rng.random() < 0.5 else case

    def run(self, case: bytes) -> None:
        for channels in (1, 3, None):
            pixels = decode_image(case, channels)
            assert pixels.ndim == 3 and pixels.dtype == np.uint8 and pixels.size
            resize(pixels, 5, 6)


def _mended(case: bytes) -> bytes:
    """A PNG whose chunks have the right checksums again, so that what was changed is looked at."""
    if not case.startswith(b"\x89PNG\r\n\x1a\n"):
        return case
    out, at = case[:8], 8
    while at + 8 <= len(case):
        (length,) = struct.unpack(">I", case[at : at + 4])
        body = case[at + 4 : at + 8 + length]
        out += case[at : at + 4] + body + struct.pack(">I", zlib.crc32(body))
        at += length + 12
    return out


TARGETS = (Images,)
