"""Files that are named like pictures and cannot be decoded, one for each way in which that happens."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image


def picture_bytes(form: str = "PNG", seed: int = 0, size: tuple[int, int] = (24, 20)) -> bytes:
    """Return the file of a picture of random pixels; ``size`` is (height, width)."""
    file = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 256, (*size, 3), np.uint8)
    Image.fromarray(pixels).save(file, form)
    return file.getvalue()


def _bomb() -> bytes:
    """Return a PNG that says that it has 60000 × 60000 pixels."""
    head = b"IHDR" + struct.pack(">IIBBBBB", 60000, 60000, 8, 2, 0, 0, 0)
    data = b"IDAT" + zlib.compress(bytes(1000))
    chunks = (struct.pack(">I", len(each) - 4) + each + struct.pack(">I", zlib.crc32(each)) for each in (head, data))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def _as_folder(path: Path) -> None:
    path.mkdir()


def _write(content: bytes) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        path.write_bytes(content)

    return write


DAMAGED: dict[str, Callable[[Path], None]] = {
    "cut.png": _write(picture_bytes("PNG")[:300]),
    "cut.jpg": _write(picture_bytes("JPEG")[:-200]),
    "cut.gif": _write(picture_bytes("GIF")[:-300]),
    "cut.bmp": _write(picture_bytes("BMP")[:-300]),
    "cut.tif": _write(picture_bytes("TIFF")[:-300]),
    "cut.webp": _write(picture_bytes("WEBP")[:-100]),
    "head.jpg": _write(picture_bytes("JPEG")[:20]),
    "empty.png": _write(b""),
    "zeros.jpg": _write(bytes(500)),
    "page.jpg": _write(b"<!DOCTYPE html><html><body>404 Not Found</body></html>"),
    "text.png": _write(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n"),
    "bomb.png": _write(_bomb()),
    "folder.png": _as_folder,
    "link.png": lambda path: path.symlink_to("nowhere.png"),
}
"""Name of a file → what makes it."""
