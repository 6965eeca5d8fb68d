#!/usr/bin/env python3
"""Writes images made by a formula as LMDBs, for benchmarks: any number, size and count of classes.

    scripts/make_synthetic.py data/synthetic --shape 3x32x32 --classes 10 --train 50000 --test 10000

makes data/synthetic/{train,test}_lmdb. Each class has a coarse pattern of its own; an image is the
pattern, moved at random, under noise. So a net can learn the classes, but not at once. The same arguments
give the same images.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bpt.base.errors import BptError
from bpt.data.datum import encode_datum
from bpt.data.lmdb_file import LmdbWriter

CELLS = 8  # a pattern has 8 x 8 cells of one value
CONTRAST = 40  # standard deviation of the pattern, in grey values
NOISE = 40  # and of the noise
LARGEST_SHIFT = 1 / 8  # of the image's side


def patterns(classes: int, shape: tuple[int, int, int], seed: int) -> NDArray[np.float32]:
    """One pattern for each class (classes, C, H, W), around 0."""
    channels, height, width = shape
    coarse = np.random.default_rng(seed).normal(0, CONTRAST, (classes, channels, CELLS, CELLS)).astype(np.float32)
    rows, columns = np.arange(height) * CELLS // height, np.arange(width) * CELLS // width
    return coarse[:, :, rows[:, np.newaxis], columns]


def images(
    count: int, shape: tuple[int, int, int], classes: int, seed: int, part: int
) -> Iterator[tuple[NDArray[np.uint8], int]]:
    """``count`` images (C, H, W) with their labels, which take turns. ``part``: 0 to train, 1 to test."""
    means = patterns(classes, shape, seed)
    for index in range(count):
        random = np.random.default_rng((seed, part, index))
        label = index % classes
        shift = [int(random.uniform(-LARGEST_SHIFT, LARGEST_SHIFT) * side) for side in shape[1:]]
        image = np.roll(means[label], shift, axis=(1, 2)) + NOISE * random.standard_normal(shape, np.float32) + 128
        yield image.clip(0, 255).astype(np.uint8), label


def shape_of(text: str) -> tuple[int, int, int]:
    """(C, H, W) from ``3x32x32``."""
    channels, height, width = map(int, text.split("x"))
    if min(channels, height, width) < 1:
        raise ValueError(text)
    return channels, height, width


def at_least(least: int) -> Callable[[str], int]:
    """A type for argparse: integers from ``least`` on."""

    def integer(text: str) -> int:
        if int(text) < least:
            raise ValueError(text)
        return int(text)

    return integer


def main() -> int:
    parser = argparse.ArgumentParser(description="Write synthetic images as LMDBs.")
    parser.add_argument("folder", type=Path, help="where to put train_lmdb and test_lmdb")
    parser.add_argument("--shape", type=shape_of, default=(3, 32, 32), help="CxHxW (default: 3x32x32)")
    parser.add_argument("--classes", type=at_least(1), default=10)
    parser.add_argument("--train", type=at_least(0), default=10000, help="images to train on; 0: none (default: 10000)")
    parser.add_argument("--test", type=at_least(0), default=2000, help="images to test on; 0: none (default: 2000)")
    parser.add_argument("--seed", type=at_least(0), default=0)
    parser.add_argument("--overwrite", action="store_true", help="replace LMDBs that exist")
    args = parser.parse_args()
    try:
        for part, (name, count) in enumerate((("train", args.train), ("test", args.test))):
            if count:
                path = args.folder / f"{name}_lmdb"
                with LmdbWriter(path, overwrite=args.overwrite) as writer:
                    for image, label in images(count, args.shape, args.classes, args.seed, part):
                        writer.put(encode_datum(image, label))
                print(f"{path}: {count} images")
    except BptError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_status
    return 0


if __name__ == "__main__":
    sys.exit(main())
