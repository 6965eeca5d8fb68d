#!/usr/bin/env python3
"""Writes the binary version of CIFAR-10 as LMDBs, with the mean image of the training set.

    scripts/convert_cifar10.py data/cifar10/cifar-10-batches-bin data/cifar10

reads data_batch_{1..5}.bin and test_batch.bin from the first folder, and makes train_lmdb, test_lmdb and
mean.binaryproto in the second. The channels stay red, green, blue, as Caffe's own converter leaves them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bpt.data.datum import encode_datum
from bpt.data.lmdb_writer import LmdbWriter
from bpt.data.mean import mean_image, write_mean
from bpt.errors import BptError, FileError

SHAPE = (3, 32, 32)
RECORD = 1 + 3 * 32 * 32  # the label, then the image
TRAIN = [f"data_batch_{number}.bin" for number in range(1, 6)]
TEST = ["test_batch.bin"]


def read_batch(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """The images (N, 3, 32, 32) and labels (N,) of one file: records of 1 + 3072 bytes."""
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


def read_batches(folder: Path, names: list[str]) -> Iterator[tuple[NDArray[np.uint8], int]]:
    """Image and label of all records of the files ``names``."""
    for name in names:
        images, labels = read_batch(folder / name)
        yield from zip(images, labels.tolist(), strict=True)


def convert(source: Path, target: Path, overwrite: bool) -> None:
    for names, name in ((TRAIN, "train_lmdb"), (TEST, "test_lmdb")):
        with LmdbWriter(target / name, overwrite=overwrite) as writer:
            for image, label in read_batches(source, names):
                writer.put(encode_datum(image, label))
        print(f"{target / name}: {len(writer)} images")
    write_mean(target / "mean.binaryproto", mean_image(image for image, _ in read_batches(source, TRAIN)))
    print(f"{target / 'mean.binaryproto'}: the mean of the training images")


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the binary version of CIFAR-10 as LMDBs.")
    parser.add_argument("source", type=Path, help="folder of the six .bin files")
    parser.add_argument("target", type=Path, help="where to put train_lmdb, test_lmdb and mean.binaryproto")
    parser.add_argument("--overwrite", action="store_true", help="replace LMDBs that exist")
    args = parser.parse_args()
    try:
        convert(args.source, args.target, args.overwrite)
    except BptError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_status
    return 0


if __name__ == "__main__":
    sys.exit(main())
