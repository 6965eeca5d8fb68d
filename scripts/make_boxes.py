#!/usr/bin/env python3
"""Writes pictures of circles, squares and triangles with the boxes of these, to train a detection net on.

    scripts/make_boxes.py data/boxes

makes {train,test}_lmdb, AnnotatedDatum records of colour images of 64x64 pixels with one to three shapes each, labelled
1 circle, 2 square, 3 triangle, and labelmap.prototxt with these names. Shapes may overlap a little. The first four to
test on are also PNG files, in pictures/, if Pillow is installed. The same arguments give the same pictures.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bpt.base.atomic import atomic_file, atomic_path
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.text import to_text
from bpt.data.annotated import encode_annotated
from bpt.data.lmdb_file import LmdbWriter
from scripts.make_shapes import NOISE, SHAPES, distance
from scripts.make_shapes import main as make

SIDE = 64
PNG_FILES = 4
ROOM = 0.75  # two shapes are at least so far apart, in sums of their radii


def picture(random: np.random.Generator) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """An image (3, SIDE, SIDE), and its objects: rows (label, instance, xmin, ymin, xmax, ymax, difficult)."""
    image = np.empty((3, SIDE, SIDE))
    image[...] = random.uniform(0, 255, (3, 1, 1))
    placed: list[tuple[float, float, float]] = []
    rows: list[tuple[float, ...]] = []
    for _ in range(random.integers(1, 4)):
        kind, radius = int(random.integers(len(SHAPES))), random.uniform(6, 14)
        row, column = random.uniform(radius, SIDE - radius, 2)
        if any(np.hypot(row - y, column - x) < ROOM * (radius + r) for y, x, r in placed):
            continue
        inside = distance(SHAPES[kind], radius, row, column, SIDE) <= 0
        colour = random.uniform(0, 255, 3)
        if np.abs(colour - image[:, inside].mean(1)).max() < 48:  # nobody could see it
            continue
        image[:, inside] = colour[:, None]
        placed.append((row, column, radius))
        down, right = np.flatnonzero(inside.any(1)), np.flatnonzero(inside.any(0))
        rows.append((kind + 1, len(rows), right[0], down[0], right[-1] + 1, down[-1] + 1, 0))
    image += random.normal(0, NOISE, image.shape)
    objects = np.array(rows, np.float32).reshape(-1, 7)
    objects[:, 2:6] /= SIDE
    return np.rint(image.clip(0, 255)).astype(np.uint8), objects


def write(folder: Path, part: str, count: int, seed: int, overwrite: bool) -> None:
    random = np.random.default_rng(seed)
    with LmdbWriter(folder / f"{part}_lmdb", overwrite=overwrite) as writer:
        for number in range(count):
            image, objects = picture(random)
            writer.put(encode_annotated(image, objects))
            if part == "test" and number < PNG_FILES:
                write_png(folder / "pictures" / f"{number}.png", image)
    print(f"{folder}/{part}_lmdb: {count} pictures")


def write_png(path: Path, image: NDArray[np.uint8]) -> None:
    """Write the ``image`` (blue, green, red) to ``path``; do nothing without Pillow."""
    try:
        from PIL import Image  # noqa: PLC0415  optional package
    except ImportError:
        return
    path.parent.mkdir(exist_ok=True)
    with atomic_path(path) as temporary:
        Image.fromarray(image[::-1].transpose(1, 2, 0)).save(temporary, "PNG")


def write_names(path: Path) -> None:
    items = [pb.LabelMapItem(name="none_of_the_above", label=0, display_name="background")]
    items += [pb.LabelMapItem(name=name, label=label, display_name=name) for label, name in enumerate(SHAPES, 1)]
    with atomic_file(path) as file:
        file.write(to_text(pb.LabelMap(item=items)).encode())


def main() -> int:
    about = "Write pictures of shapes, with their boxes, as LMDBs."
    return make(about, write, lambda folder: write_names(folder / "labelmap.prototxt"))


if __name__ == "__main__":
    sys.exit(main())
