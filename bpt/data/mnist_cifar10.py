"""Converts MNIST's files, others of their format (Fashion-MNIST), and CIFAR-10's binary files to LMDBs."""

from __future__ import annotations

import gzip
import math
import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bpt.base.errors import FileError
from bpt.data.datum import encode_datum
from bpt.data.lmdb_file import LmdbWriter

_SMALL, _LARGE = 2**20, 2**31  # bytes
BYTES = 8  # IDX's type code of unsigned bytes


def read_idx(path: str | os.PathLike[str]) -> NDArray[np.uint8]:
    """Return the array in an IDX file of unsigned bytes, compressed by gzip if the name ends in .gz.

    The file has two zero bytes, the type code, the number of dimensions, each dimension as a big-endian 32-bit integer,
    and the values.

    Raises:
        FileError: the file cannot be read, or has another format.
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
    """Return the content of a gzip file, and little more than its head announces, because of decompression bombs."""
    with gzip.open(path) as file:
        head = file.read(4)
        head += file.read(4 * head[3] if len(head) > 3 else 0)
        announced = math.prod(int.from_bytes(head[at : at + 4], "big") for at in range(4, len(head), 4))
        return head + file.read(min(max(announced, _SMALL), _LARGE) + 1)


def convert_mnist(images: str, labels: str, target: str, *, overwrite: bool = False) -> int:
    """Write the images (1, H, W) and labels of two IDX files to the LMDB ``target``, and return their number.

    Raises:
        FileError: a file is wrong, the files do not match, or ``target`` exists and ``overwrite`` is off.
        WriteError: the LMDB could not be written.
    """
    pixels, numbers = read_idx(images), read_idx(labels)
    if pixels.ndim != 3 or numbers.shape != pixels.shape[:1]:
        raise FileError(images, f"images of shape {pixels.shape} with labels of shape {numbers.shape} ({labels})")
    with LmdbWriter(target, overwrite=overwrite) as writer:
        for image, label in zip(pixels, numbers.tolist(), strict=True):
            writer.put(encode_datum(image[np.newaxis], label))
    return len(pixels)


SHAPE = (3, 32, 32)
RECORD = 1 + 3 * 32 * 32  # bytes of the label and the image
TRAIN = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
TEST = ("test_batch.bin",)
TRAIN_LMDB, TEST_LMDB = "cifar10_train_lmdb", "cifar10_test_lmdb"


def read_batch(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return the images (N, 3, 32, 32), red first, and labels (N,) of one file with records of 1 + 3072 bytes.

    Raises:
        FileError: the file cannot be read, or has another format.
    """
    try:
        content = np.frombuffer(path.read_bytes(), np.uint8)
    except OSError as error:
        raise FileError(path, f"cannot be read: {error.strerror}") from None
    if not content.size or content.size % RECORD:
        raise FileError(path, f"is damaged: {content.size} bytes are no multiple of {RECORD}")
    records = content.reshape(-1, RECORD)
    if records[:, 0].max() > 9:
        raise FileError(path, f"is not CIFAR-10: it has the label {records[:, 0].max()}")
    return records[:, 1:].reshape(-1, *SHAPE), records[:, 0]


def read_batches(folder: Path, names: Sequence[str]) -> Iterator[tuple[NDArray[np.uint8], int]]:
    """Yield image and label of each record in the files ``names``."""
    for name in names:
        images, labels = read_batch(folder / name)
        yield from zip(images, labels.tolist(), strict=True)


def convert_cifar10(source: Path, target: Path, *, overwrite: bool = False) -> Iterator[tuple[Path, int]]:
    """Write both LMDBs into the folder ``target``, and yield each with its number of images.

    As with Caffe's own converter, channels stay red, green, blue, and keys have five digits.

    Raises:
        FileError: a file is wrong, or an LMDB exists and ``overwrite`` is off.
        WriteError: an LMDB could not be written.
    """
    for names, name in ((TRAIN, TRAIN_LMDB), (TEST, TEST_LMDB)):
        with LmdbWriter(target / name, overwrite=overwrite) as writer:
            for number, (image, label) in enumerate(read_batches(source, names)):
                writer.put(encode_datum(image, label), f"{number:05d}")
        yield target / name, len(writer)
