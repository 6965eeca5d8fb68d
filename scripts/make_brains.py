#!/usr/bin/env python3
"""Writes made-up brains as NIfTI volumes, of two classes: 0 is healthy, 1 has an atrophy at a known place.

    scripts/make_brains.py data/brains

makes data/brains/{train,test}/*.nii.gz, the lists train.txt and test.txt that a VolumeData layer reads, and
region.nii.gz, which is 1 where the atrophy is planted and 0 elsewhere.

A brain is an ellipsoid with smooth random texture, two dark ventricles, and two bodies, as bright as tissue, where
people have the hippocampi. In class 1 these bodies have shrunk and dark fluid fills the place: what tells the class is
something that is there in class 1, not something that is missing. Size, position and pose of the head, its brightness,
the size of the ventricles and that of the bodies differ from brain to brain in both classes, and there is noise; so the
mean intensity does not tell the class, but the look of that place does. The same arguments give the same files.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bpt.base.errors import BptError, WriteError
from bpt.data.nifti import import_nibabel
from bpt.data.volume_source import resample

Volume = NDArray[np.float32]
Points = NDArray[np.float64]
Ellipsoid = tuple[tuple[float, float, float], tuple[float, float, float]]

FIELD = 200.0  # mm that a volume measures along each axis; places and radii below are fractions of half of it
HEAD: Ellipsoid = (0, 0, 0), (0.72, 0.86, 0.74)  # centre, radii; the axes run to the right, the front, the top
VENTRICLES: tuple[Ellipsoid, ...] = ((-0.14, 0.08, 0.16), (0.10, 0.34, 0.15)), ((0.14, 0.08, 0.16), (0.10, 0.34, 0.15))
BODIES: tuple[Ellipsoid, ...] = ((-0.36, -0.14, -0.26), (0.20, 0.32, 0.20)), ((0.36, -0.14, -0.26), (0.20, 0.32, 0.20))
TISSUE, FLUID, BODY = 1.0, 0.45, 1.0  # brightness
TEXTURE = 0.12  # standard deviation of the tissue's brightness
CELLS = 7  # the texture has 7x7x7 random values
TURN, MOVE, GROW = 0.08, 0.04, 0.05  # largest: radians about each axis, fractions of FIELD / 2, parts of the size
GAIN = 0.2  # largest part by which a whole volume is brighter or darker
SLOPE = 0.1  # the same at the borders, as an uneven scanner makes it
UNIT = 1000  # what brightness 1 is in a file of 16-bit integers


def places(size: int) -> Points:
    """The centres of the voxels (3, size, size, size), from about -1 to 1."""
    axis = (np.arange(size) + 0.5) * 2 / size - 1
    return np.stack(np.meshgrid(axis, axis, axis, indexing="ij"))


def within(at: Points, ellipsoid: Ellipsoid, scale: float = 1.0) -> Points:
    """How much of the voxel at each place is within the ellipsoid, whose radii are multiplied by ``scale``."""
    centre, radii = ellipsoid
    wide = np.array(radii) * scale
    distance: Points = np.sqrt((((at.T - centre) / wide) ** 2).sum(axis=-1)).T
    voxel = 2 / at.shape[1]
    part: Points = np.clip(0.5 + (1 - distance) * wide.mean() / voxel, 0, 1)
    return part


def posed(at: Points, random: np.random.Generator) -> Points:
    """The places ``at`` as a head sees them that is turned, moved and scaled at random."""
    turns = random.uniform(-TURN, TURN, 3)
    for (first, second), turn in zip(((0, 1), (0, 2), (1, 2)), turns, strict=True):
        rotation = np.eye(3)
        rotation[[first, second], [first, second]] = np.cos(turn)
        rotation[first, second], rotation[second, first] = -np.sin(turn), np.sin(turn)
        at = np.tensordot(rotation, at, 1)
    moved = at - random.uniform(-MOVE, MOVE, 3).reshape(3, 1, 1, 1)
    return moved / (1 + random.uniform(-GROW, GROW, 3).reshape(3, 1, 1, 1))


def brain(size: int, label: int, shrink: float, noise: float, random: np.random.Generator) -> Points:
    """One volume (size, size, size), tissue having brightness 1.

    Args:
        label: 1: with atrophy.
        shrink: the part of their radii that the bodies lose by it, on average; from brain to brain it is 0.75 to 1.25
            times this, and each may be up to 10 % smaller or larger before.
        noise: its standard deviation.
    """
    straight = places(size)
    at = posed(straight, random)
    coarse = random.normal(0, TEXTURE, (CELLS, CELLS, CELLS)).astype(np.float32)
    bright = TISSUE + resample(coarse, (size, size, size)).astype(np.float64)
    for ventricle in VENTRICLES:
        share = within(at, ventricle, random.uniform(0.75, 1.25))
        bright += share * (FLUID - bright)
    for body in BODIES:
        lost = shrink * random.uniform(0.75, 1.25) if label else 0.0
        usual = random.uniform(0.9, 1.1)
        place, rest = within(at, body, usual), within(at, body, usual * (1 - lost))
        bright += place * (FLUID - bright)
        bright += rest * (BODY - bright)
    bright *= within(at, HEAD)
    slope = np.tensordot(random.uniform(-SLOPE, SLOPE, 3), straight, 1)
    bright *= (1 + slope) * (1 + random.uniform(-GAIN, GAIN))
    return bright + random.normal(0, noise, bright.shape)


def region(size: int) -> NDArray[np.uint8]:
    """1 where the bodies are in a head that sits straight, 0 elsewhere (size, size, size)."""
    parts = np.stack([within(places(size), body) for body in BODIES])
    whole: NDArray[np.uint8] = (parts.sum(axis=0) > 0.5).astype(np.uint8)
    return whole


def write_nifti(path: Path, voxels: NDArray[np.generic]) -> None:
    """Write ``voxels``, of RAS+ axes, centred at the origin."""
    nibabel = import_nibabel()
    size = voxels.shape[0]
    affine = np.diag([FIELD / size] * 3 + [1.0])
    affine[:3, 3] = -FIELD / 2 + FIELD / size / 2
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        nibabel.save(nibabel.Nifti1Image(voxels, affine), path)
    except OSError as error:
        raise WriteError(path, error.strerror or error) from None


def write_list(path: Path, lines: list[str]) -> None:
    try:
        path.write_text("".join(lines))
    except OSError as error:
        raise WriteError(path, error.strerror or error) from None


def write(folder: Path, *, size: int, counts: tuple[int, int], seed: int, shrink: float, noise: float) -> None:
    """Write the volumes, the lists, and the region; ``counts`` are those to train on and to test on."""
    for part, (name, count) in enumerate(zip(("train", "test"), counts, strict=True)):
        lines = []
        for index in range(count):
            label = index % 2
            made = brain(size, label, shrink, noise, np.random.default_rng((seed, part, index)))
            file = Path(name) / f"{index:04d}.nii.gz"
            write_nifti(folder / file, np.rint(made * UNIT).astype(np.int16))
            lines.append(f"{file.as_posix()} {label}\n")
        if lines:
            write_list(folder / f"{name}.txt", lines)
            print(f"{folder / name}.txt: {count} volumes")
    write_nifti(folder / "region.nii.gz", region(size))


def number(least: float, most: float = float("inf"), kind: type = int) -> Callable[[str], float]:
    """A type for argparse: numbers of ``kind`` from ``least`` to ``most``."""

    def within_limits(text: str) -> float:
        value: float = kind(text)
        if not least <= value <= most:
            raise ValueError(text)
        return value

    return within_limits


def main() -> int:
    parser = argparse.ArgumentParser(description="Write made-up brains of two classes as NIfTI volumes.")
    place = parser.add_mutually_exclusive_group()
    place.add_argument("folder", type=Path, nargs="?", default=Path("data/brains"), help="default: data/brains")
    place.add_argument("--out", type=Path, metavar="FOLDER", help="the same")
    parser.add_argument("--size", type=number(8, 256), default=32, help="voxels along each axis (default: 32)")
    parser.add_argument("--train", type=number(0), default=160, help="volumes to train on (default: 160)")
    parser.add_argument("--test", type=number(0), default=80, help="volumes to test on (default: 80)")
    parser.add_argument("--seed", type=number(0), default=0)
    parser.add_argument(
        "--shrink", type=number(0, 0.75, float), default=0.6, help="part of its radii that a body loses (default: 0.6)"
    )
    parser.add_argument(
        "--noise", type=number(0, 4, float), default=0.1, help="standard deviation; tissue is 1 (default: 0.1)"
    )
    args = parser.parse_args()
    try:
        write(
            args.out or args.folder,
            size=args.size,
            counts=(args.train, args.test),
            seed=args.seed,
            shrink=args.shrink,
            noise=args.noise,
        )
    except BptError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_status
    return 0


if __name__ == "__main__":
    sys.exit(main())
