"""Image files of all formats that are read."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pytest

from tests.fuzz.engine import run_cases, run_one
from tests.fuzz.targets.images import Images


def test_images_are_taken_or_refused(tmp_path: Path) -> None:
    run_cases(Images(tmp_path), 1, range(400))


def _png(width: int, height: int, data: bytes) -> bytes:
    head = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = (head, b"IDAT" + data, b"IEND")
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk)) for chunk in chunks
    )


@pytest.mark.parametrize("side", [10_000, 13_000, 20_000, 2**31 - 1])
def test_an_image_that_says_it_is_huge_is_refused_before_memory_is_taken(side: int, tmp_path: Path) -> None:
    """Pillow warns, or raises an error of its own; a few bytes may announce gigabytes."""
    case = _png(side, side, zlib.compress(b"\0" * 4096))
    assert run_one(Images(tmp_path), case).refused
