#!/usr/bin/env python3
"""Writes short clips of a moving blob as HDF5 files, to train a recurrent net on. Needs h5py (pip install 'bpt[hdf5]').

    scripts/make_clips.py data/clips

makes {train,test}.h5 and the lists {train,test}.txt of them. A clip has 8 frames of 20x20 grey pixels, in which a blob
starts somewhere about the middle and moves up, down, left or right (classes 0 to 3), under noise. The first frame does
not tell in which direction: its label is -1, which a loss can ignore. The later ones do, to those who remember it.

Rows are frames, in the order in which recurrent layers read them: the first frames of 16 clips, their second frames,
and so on; then the next 16 clips. Datasets: "data" (rows, 1, 20, 20), "label" (rows,), and "cont" (rows,), 0 for the
first frame of a clip and 1 for the others. The same arguments give the same clips.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bpt.base.atomic import atomic_file, atomic_path
from bpt.base.errors import BptError, UserError

FRAMES, CLIPS, SIDE = 8, 16, 20  # of a group: FRAMES x CLIPS rows
STEPS = np.array([(-1, 0), (1, 0), (0, -1), (0, 1)])  # of a frame, in (rows, columns): up, down, left, right
FAR = 4  # pixels from the middle that a blob starts at most, in rows and in columns
WIDTH = 2.0  # of the blob: its standard deviation, in pixels
NOISE = 0.1


def group(random: np.random.Generator) -> dict[str, NDArray[np.float32]]:
    """The rows of CLIPS clips, by dataset."""
    classes = random.integers(len(STEPS), size=CLIPS)
    starts = SIDE / 2 + random.uniform(-FAR, FAR, (CLIPS, 2))
    time = np.arange(FRAMES)[:, np.newaxis, np.newaxis]
    places = starts + time * STEPS[classes]  # (FRAMES, CLIPS, 2)
    away = np.arange(SIDE) - places[..., np.newaxis]
    rows, columns = np.exp(-(away**2) / (2 * WIDTH**2)).transpose(2, 0, 1, 3)
    frames = rows[..., np.newaxis] * columns[..., np.newaxis, :]
    frames += random.normal(0, NOISE, frames.shape)
    labels = np.tile(classes, (FRAMES, 1))
    labels[0] = -1
    cont = np.ones((FRAMES, CLIPS))
    cont[0] = 0
    values = {"data": frames.reshape(-1, 1, SIDE, SIDE), "label": labels.ravel(), "cont": cont.ravel()}
    return {name: array.astype(np.float32) for name, array in values.items()}


def write(folder: Path, part: str, clips: int, seed: int) -> None:
    try:
        import h5py  # noqa: PLC0415  optional package
    except ImportError:
        raise UserError("clips are HDF5 files and need the package h5py: pip install 'bpt[hdf5]'") from None
    random = np.random.default_rng(seed)
    groups = [group(random) for _ in range(clips // CLIPS)]
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_path(folder / f"{part}.h5") as path, h5py.File(path, "w") as content:
        for name in groups[0]:
            content[name] = np.concatenate([rows[name] for rows in groups])
    with atomic_file(folder / f"{part}.txt") as file:
        file.write(f"{part}.h5\n".encode())
    print(f"{folder}/{part}.h5: {len(groups) * CLIPS} clips of {FRAMES} frames")


def main() -> int:
    parser = argparse.ArgumentParser(description="Write clips of a moving blob as HDF5 files.")
    parser.add_argument("folder", type=Path, help="where to put the files")
    parser.add_argument("--train", type=int, default=1600, help="clips to train on, times 16 (default: 1600)")
    parser.add_argument("--test", type=int, default=320, help="clips to test on, times 16 (default: 320)")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if min(args.train, args.test) < CLIPS or (args.train % CLIPS) or (args.test % CLIPS) or args.seed < 0:
        parser.error(f"--train and --test take multiples of {CLIPS}, --seed a number of at least 0")
    try:
        for number, (part, clips) in enumerate((("train", args.train), ("test", args.test))):
            write(args.folder, part, clips, 2 * args.seed + number)
    except BptError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_status
    return 0


if __name__ == "__main__":
    sys.exit(main())
