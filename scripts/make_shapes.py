#!/usr/bin/env python3
"""Writes pictures of circles, squares and triangles with a class for each pixel, to train a segmentation net on.

    scripts/make_shapes.py data/shapes

makes {train,test}_images_lmdb, colour images of 50x50 pixels, and {train,test}_labels_lmdb, whose images of one channel
have the class of each pixel: 0 background, 1 circle, 2 square, 3 triangle, and 255 for the edges of the shapes, which
do not count. Records of one number belong together. The same arguments give the same pictures.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bpt.base.errors import BptError
from bpt.data.datum import encode_datum
from bpt.data.lmdb_file import LmdbWriter

SIDE = 50
SHAPES = ("circle", "square", "triangle")  # classes 1, 2, 3
EDGE = 255
NOISE = 12  # standard deviation, in grey values
ABOUT = "Write pictures of shapes, with classes of pixels, as LMDBs."
Write = Callable[[Path, str, int, int, bool], object]


def picture(random: np.random.Generator) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """An image (3, SIDE, SIDE) and its classes (1, SIDE, SIDE), with one to three shapes, the later ones in front."""
    image = np.empty((3, SIDE, SIDE))
    image[...] = random.uniform(0, 255, (3, 1, 1))
    labels = np.zeros((SIDE, SIDE), np.uint8)
    for _ in range(random.integers(1, 4)):
        kind = int(random.integers(len(SHAPES)))
        row, column = random.uniform(8, SIDE - 8, 2)
        inside = distance(SHAPES[kind], random.uniform(5, 12), row, column)
        image[:, inside <= 0] = random.uniform(0, 255, (3, 1))
        labels[inside <= 0.5] = kind + 1
        labels[np.abs(inside) <= 0.5] = EDGE
    image += random.normal(0, NOISE, image.shape)
    return np.rint(image.clip(0, 255)).astype(np.uint8), labels[np.newaxis]


def distance(shape: str, radius: float, row: float, column: float, side: int = SIDE) -> NDArray[np.float64]:
    """How far (in pixels) each pixel (side, side) is from the edge of a shape; negative inside."""
    away: NDArray[np.float64]
    down, right = np.mgrid[:side, :side] - np.array([row, column])[:, np.newaxis, np.newaxis]
    if shape == "circle":
        away = np.hypot(down, right) - radius
    elif shape == "square":
        away = np.maximum(np.abs(down), np.abs(right)) - radius
    else:  # a triangle that stands on its third side; the slope is that of the two upper ones
        slope = np.sqrt(3) / 2 * np.abs(right) - down / 2
        away = np.maximum(slope, down) - radius / 2
    return away


def write(folder: Path, part: str, count: int, seed: int, overwrite: bool) -> None:
    random = np.random.default_rng(seed)
    with (
        LmdbWriter(folder / f"{part}_images_lmdb", overwrite=overwrite) as images,
        LmdbWriter(folder / f"{part}_labels_lmdb", overwrite=overwrite) as labels,
    ):
        for _ in range(count):
            image, classes = picture(random)
            images.put(encode_datum(image, 0))
            labels.put(encode_datum(classes, 0))
    print(f"{folder}/{part}_{{images,labels}}_lmdb: {count} pictures")


def main(about: str = ABOUT, write: Write = write, finish: Callable[[Path], object] | None = None) -> int:
    """Read the command line, and make what it says.

    Args:
        about: what it makes.
        write: makes a part, train or test: (folder, part, pictures, seed, overwrite).
        finish: called with the folder at the end.
    """
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("folder", type=Path, help="where to put the LMDBs")
    parser.add_argument("--train", type=int, default=2000, help="pictures to train on (default: 2000)")
    parser.add_argument("--test", type=int, default=200, help="pictures to test on (default: 200)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--overwrite", action="store_true", help="replace LMDBs that exist")
    args = parser.parse_args()
    if min(args.train, args.test) < 1 or args.seed < 0:
        parser.error("--train and --test take numbers of at least 1, --seed one of at least 0")
    try:
        for number, (part, count) in enumerate((("train", args.train), ("test", args.test))):
            write(args.folder, part, count, 2 * args.seed + number, args.overwrite)
        if finish:
            finish(args.folder)
    except BptError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_status
    return 0


if __name__ == "__main__":
    sys.exit(main())
