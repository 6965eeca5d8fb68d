"""MNIST's files, and all others of their format (Fashion-MNIST), as LMDBs."""

from __future__ import annotations

import gzip
import math
import os
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bpt.data.datum import encode_datum
from bpt.data.lmdb_writer import LmdbWriter
from bpt.errors import FileError

_SMALL, _LARGE = 2**20, 2**31  # bytes
BYTES = 8  # the type code of unsigned bytes


def read_idx(path: str | os.PathLike[str]) -> NDArray[np.uint8]:
    """The array in an IDX file of unsigned bytes, packed by gzip if the name ends in .gz.

    The file holds two zero bytes, the type code, the number of dimensions, each dimension as a big-endian
    32-bit integer, and the values.

    Raises:
        FileError: it cannot be read, or is not such a file.
    """
    path = Path(path)
    try:
        content = _unpacked(path) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise FileError(path, f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
    start = 4 + 4 * content[3] if len(content) > 3 else 4
    if content[:3] != bytes((0, 0, BYTES)) or len(content) < start:
        raise FileError(path, "is not an IDX file of unsigned bytes")
    shape = tuple(np.frombuffer(content[4:start], ">u4").tolist())
    values = np.frombuffer(content, np.uint8, offset=start)
    if values.size != math.prod(shape):
        raise FileError(path, f"is damaged: it should hold {shape} values, but holds {values.size}")
    return values.reshape(shape)


def _unpacked(path: Path) -> bytes:
    """The content of a packed file, but not much more than it says that it holds: it may be packed a thousandfold."""
    with gzip.open(path) as file:
        head = file.read(4)
        head += file.read(4 * head[3] if len(head) > 3 else 0)
        announced = math.prod(int.from_bytes(head[at : at + 4], "big") for at in range(4, len(head), 4))
        return head + file.read(min(max(announced, _SMALL), _LARGE) + 1)


def convert_mnist(images: str, labels: str, target: str, *, overwrite: bool = False) -> int:
    """Write the images (1, H, W) and labels of two IDX files to the LMDB ``target``; how many there are.

    Raises:
        FileError: a file is wrong, they do not belong together, or ``target`` exists and ``overwrite`` is off.
        WriteError: the LMDB could not be written.
    """
    pixels, numbers = read_idx(images), read_idx(labels)
    if pixels.ndim != 3 or numbers.shape != pixels.shape[:1]:
        raise FileError(images, f"images of shape {pixels.shape} with labels of shape {numbers.shape} ({labels})")
    with LmdbWriter(target, overwrite=overwrite) as writer:
        for image, label in zip(pixels, numbers.tolist(), strict=True):
            writer.put(encode_datum(image[np.newaxis], label))
    return len(pixels)
