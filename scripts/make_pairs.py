#!/usr/bin/env python3
"""Writes pairs of images as LMDBs, to train a siamese net on.

    scripts/make_pairs.py data/digits data/digit_pairs

reads {train,test}_lmdb of grey images from the first folder and makes {train,test}_lmdb in the second. The two images
of a pair are the two channels of one image; its label is 1 if their labels are equal, else 0. Each image is the first
of --pairs pairs, of which half are of equal ones. The same arguments give the same pairs.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

from bpt.base.errors import BptError, FileError
from bpt.data.datum import encode_datum
from bpt.data.lmdb_file import LmdbSource, LmdbWriter

PARTS = ("train_lmdb", "test_lmdb")


def write(source: Path, target: Path, pairs: int, seed: int, overwrite: bool) -> None:
    """Write the LMDB ``target`` with pairs of the images in ``source``."""
    images, labels = read(source)
    random = np.random.default_rng(seed)
    firsts = random.permutation(np.tile(np.arange(len(images)), pairs))
    alike = {label: np.flatnonzero(labels == label) for label in np.unique(labels)}
    with LmdbWriter(target, overwrite=overwrite) as writer:
        for number, first in enumerate(firsts):
            equal = number % 2
            others = alike[labels[first]] if equal else np.flatnonzero(labels != labels[first])
            second = random.choice(others)
            writer.put(encode_datum(np.concatenate((images[first], images[second])), int(equal)))
    print(f"{target}: {len(firsts)} pairs")


def read(source: Path) -> tuple[list[np.ndarray], np.ndarray]:
    """The images (1, H, W) and labels of an LMDB; a FileError if there is only one label."""
    records = LmdbSource(str(source))
    try:
        samples = [records.read(index) for index in range(len(records))]
    finally:
        records.close()
    images = [np.array(sample.image) for sample in samples]
    labels = np.array([sample.label for sample in samples])
    if len(set(labels.tolist())) < 2:
        raise FileError(source, "all images have one label, so there are no pairs of unlike ones")
    shape = images[0].shape
    if shape[0] != 1 or any(image.shape != shape for image in images):
        raise FileError(source, "pairs are made of grey images of one size")
    return images, labels


def main() -> int:
    parser = argparse.ArgumentParser(description="Write pairs of images as LMDBs.")
    parser.add_argument("source", type=Path, help="folder with train_lmdb and test_lmdb")
    parser.add_argument("target", type=Path, help="folder to put train_lmdb and test_lmdb of pairs in")
    parser.add_argument("--pairs", type=int, default=4, help="pairs that an image is the first of (default: 4)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--overwrite", action="store_true", help="replace LMDBs that exist")
    args = parser.parse_args()
    if args.pairs < 1 or args.seed < 0:
        parser.error("--pairs takes a number of at least 1, --seed one of at least 0")
    try:
        for part, name in enumerate(PARTS):
            write(args.source / name, args.target / name, args.pairs, 2 * args.seed + part, args.overwrite)
    except BptError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_status
    return 0


if __name__ == "__main__":
    sys.exit(main())
