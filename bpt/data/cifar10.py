"""CIFAR-10's binary files as LMDBs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bpt.data.datum import encode_datum
from bpt.data.lmdb_writer import LmdbWriter
from bpt.errors import FileError

SHAPE = (3, 32, 32)
RECORD = 1 + 3 * 32 * 32  # the label, then the image
TRAIN = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
TEST = ("test_batch.bin",)
TRAIN_LMDB, TEST_LMDB = "cifar10_train_lmdb", "cifar10_test_lmdb"


def read_batch(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """The images (N, 3, 32, 32), red first, and labels (N,) of one file: records of 1 + 3072 bytes.

    Raises:
        FileError: it cannot be read, or is not such a file.
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
    """Image and label of all records of the files ``names``."""
    for name in names:
        images, labels = read_batch(folder / name)
        yield from zip(images, labels.tolist(), strict=True)


def convert_cifar10(source: Path, target: Path, *, overwrite: bool = False) -> Iterator[tuple[Path, int]]:
    """Write both LMDBs into the folder ``target``; each with how many images it has.

    Channels stay red, green, blue, as Caffe's own converter leaves them. Keys have five digits, as its.

    Raises:
        FileError: a file is wrong, or an LMDB exists and ``overwrite`` is off.
        WriteError: an LMDB could not be written.
    """
    for names, name in ((TRAIN, TRAIN_LMDB), (TEST, TEST_LMDB)):
        with LmdbWriter(target / name, overwrite=overwrite) as writer:
            for number, (image, label) in enumerate(read_batches(source, names)):
                writer.put(encode_datum(image, label), f"{number:05d}")
        yield target / name, len(writer)
