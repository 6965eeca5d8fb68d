#!/usr/bin/env python3
"""Writes the files of MNIST, as they are distributed, as LMDBs.

    scripts/convert_mnist.py data/mnist/raw data/mnist

reads {train,t10k}-{images-idx3,labels-idx1}-ubyte, packed (.gz) or not, from the first folder, and makes
train_lmdb and test_lmdb in the second. Any set of this format will do, such as Fashion-MNIST.
"""

from __future__ import annotations

import argparse
import gzip
import math
import sys
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bpt.data.datum import encode_datum
from bpt.data.lmdb_writer import LmdbWriter
from bpt.errors import BptError, FileError

PARTS = (("train", "train_lmdb"), ("t10k", "test_lmdb"))
BYTES = 8  # the type code of unsigned bytes


def read_idx(path: Path) -> NDArray[np.uint8]:
    """The array in an IDX file of unsigned bytes, packed by gzip if the name ends in .gz.

    The file holds two zero bytes, the type code, the number of dimensions, each dimension as a big-endian
    32-bit integer, and the values.
    """
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise FileError(path, f"cannot be read: {error}") from None
    start = 4 + 4 * content[3] if len(content) > 3 else 4
    if content[:3] != bytes((0, 0, BYTES)) or len(content) < start:
        raise FileError(path, "is not an IDX file of unsigned bytes")
    shape = tuple(np.frombuffer(content[4:start], ">u4").tolist())
    values = np.frombuffer(content, np.uint8, offset=start)
    if values.size != math.prod(shape):
        raise FileError(path, f"is damaged: it should hold {shape} values, but holds {values.size}")
    return values.reshape(shape)


def find(folder: Path, name: str) -> Path:
    """The file ``name`` in ``folder``, or else its packed form."""
    return folder / name if (folder / name).exists() else folder / f"{name}.gz"


def convert(source: Path, target: Path, overwrite: bool) -> None:
    for prefix, name in PARTS:
        images = read_idx(find(source, f"{prefix}-images-idx3-ubyte"))
        labels = read_idx(find(source, f"{prefix}-labels-idx1-ubyte"))
        if images.ndim != 3 or labels.shape != images.shape[:1]:
            raise FileError(source, f"{prefix}: images of shape {images.shape} with labels of shape {labels.shape}")
        with LmdbWriter(target / name, overwrite=overwrite) as writer:
            for image, label in zip(images, labels.tolist(), strict=True):
                writer.put(encode_datum(image[np.newaxis], label))
        print(f"{target / name}: {len(images)} images")


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the files of MNIST as LMDBs.")
    parser.add_argument("source", type=Path, help="folder of the four files")
    parser.add_argument("target", type=Path, help="where to put train_lmdb and test_lmdb")
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
