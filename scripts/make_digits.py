#!/usr/bin/env python3
"""Writes scikit-learn's 1,797 handwritten digits as data/digits/{train,test}_lmdb. Needs no network.

The 8x8 images are enlarged to 32x32 grey ones. 360 are set aside to test on, each digit in proportion. Two of these
become pictures, seven.png and three.png, to ask a trained network about. Every run chooses the same; what is complete
is left alone.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bpt.base.atomic import atomic_path
from bpt.base.errors import BptError, UserError
from bpt.data.datum import encode_datum
from bpt.data.lmdb_file import LmdbSource, LmdbWriter
from bpt.data.sampler import hash_samples

SIDE = 32
WHITE = 16  # the largest value in the set
SEED = 0
TEST_EVERY = 5  # one image of five is for testing
PICTURES = {7: "seven.png", 3: "three.png"}


def enlarge(images: NDArray[np.float64]) -> NDArray[np.uint8]:
    """``images`` (N, 8, 8) of 0..16 as (N, 32, 32) of 0..255, by Lanczos' filter of radius 3."""
    old = images.shape[1]
    centres = (np.arange(SIDE) + 0.5) * old / SIDE - 0.5  # of the new pixels, among the old ones
    distance = centres[:, np.newaxis] - np.arange(old)
    # Row i of this matrix holds the shares of the old pixels in the new pixel i.
    shares = np.where(np.abs(distance) < 3, np.sinc(distance) * np.sinc(distance / 3), 0)
    shares /= shares.sum(axis=1, keepdims=True)
    enlarged: NDArray[np.uint8] = np.rint((shares @ (images * 255 / WHITE) @ shares.T).clip(0, 255)).astype(np.uint8)
    return enlarged


def split(labels: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Indices to train on and to test on, both in random order. Each label has the same share of both."""
    number = np.arange(len(labels))
    chance = hash_samples(SEED, np.zeros_like(number), number)
    by_label = np.lexsort((chance, labels))
    test = np.zeros(len(labels), bool)
    test[by_label[::TEST_EVERY]] = True
    mixed = np.argsort(chance, kind="stable")
    return mixed[~test[mixed]], mixed[test[mixed]]


def write(folder: Path) -> None:
    try:
        from sklearn.datasets import load_digits  # noqa: PLC0415  optional package
    except ImportError:
        raise UserError("the digits come with the package scikit-learn: pip install 'bpt[demo]'") from None
    digits = load_digits()
    images = enlarge(digits.images)
    for name, chosen in zip(("train_lmdb", "test_lmdb"), split(digits.target), strict=True):
        if (folder / name).exists():  # it took this name when it was complete
            print(f"{folder / name} is complete")
            continue
        with LmdbWriter(folder / name) as writer:
            for index in chosen.tolist():
                writer.put(encode_datum(images[index, np.newaxis], int(digits.target[index])))
        print(f"{folder / name}: {len(chosen)} images")
    write_pictures(folder)


def write_pictures(folder: Path) -> None:
    """Write as PNG files the first seven and the first three of the digits to test on, if Pillow is installed."""
    wanted = {digit: folder / name for digit, name in PICTURES.items() if not (folder / name).exists()}
    try:
        from PIL import Image  # noqa: PLC0415  optional package
    except ImportError:
        print(f"{' and '.join(PICTURES.values())} are not written: they need the package Pillow")
        return
    source = LmdbSource(str(folder / "test_lmdb"))
    for index in range(len(source)):
        sample = source.read(index)
        if path := wanted.pop(int(sample.label), None):
            with atomic_path(path) as temporary:
                Image.fromarray(np.asarray(sample.image[0], np.uint8)).save(temporary, "PNG")
            print(path)
    source.close()


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Write scikit-learn's handwritten digits as LMDBs, and two as pictures."
    )
    parser.add_argument("folder", type=Path, nargs="?", default=Path("data/digits"), help="default: data/digits")
    try:
        write(parser.parse_args().folder)
    except BptError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_status
    return 0


if __name__ == "__main__":
    sys.exit(main())
