"""What is done to volumes before the net sees them: resampling, intensities, random mirroring and moving."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bpt.context import derive_seed
from bpt.data.counter_hash import below, hash_samples
from bpt.data.nifti import Volume
from bpt.data.sampler import Draw
from bpt.errors import DataError, UserError
from bpt.graph.spec import Shape
from bpt.proto import bpt_pb2 as pb

Intensity = pb.VolumeDataParameter.Intensity


def resample(volume: Volume, shape: Shape) -> Volume:
    """``volume`` (d, h, w) with ``shape`` (D, H, W), by trilinear interpolation between the centres of its voxels.

    Along each axis the centres of the first and the last voxel stay where they are, and the others are spread evenly
    between them: new voxel i of n lies at i (m - 1) / (n - 1) of the m old ones, and a single one in their middle. So
    a ramp stays a ramp, and a volume that has the shape already is not changed. Each axis is stretched by itself,
    whatever the voxels' lengths. Nothing is smoothed: where a volume shrinks a lot, voxels between the new ones are
    left out.
    """
    for axis, new in enumerate(shape):
        volume = _along(volume, axis, new)
    return volume


def _along(volume: Volume, axis: int, new: int) -> Volume:
    old = volume.shape[axis]
    if new == old:
        return volume
    # (n - 1) divides last: whole numbers come out whole.
    at = np.arange(new) * (old - 1) / (new - 1) if new > 1 else np.array([(old - 1) / 2])
    below_it = at.astype(np.int64)
    above_it = np.minimum(below_it + 1, old - 1)
    part = (at - below_it).astype(np.float32).reshape([-1 if axis == a else 1 for a in range(3)])
    low, high = volume.take(below_it, axis), volume.take(above_it, axis)
    between: Volume = low + (high - low) * part  # so that equal voxels give exactly equal ones
    return between


def normalise(volume: Volume, intensity: int) -> Volume:
    """The intensities of one volume as a VolumeDataParameter's ``intensity`` says.

    RAW: as they are. Z_SCORE: less their mean, over their standard deviation (that of all voxels, divided by their
    number). MIN_MAX: from 0 to 1.

    Raises:
        DataError: all voxels are equal, so that there is nothing to divide by.
    """
    if intensity == pb.VolumeDataParameter.RAW:
        return volume
    lowest, highest = float(volume.min()), float(volume.max())
    if lowest == highest:
        raise DataError(f"all its voxels are {lowest:g}: {Intensity.Name(intensity)} has nothing to divide by")
    if intensity == pb.VolumeDataParameter.MIN_MAX:
        less, over = lowest, highest - lowest
    else:
        less, over = float(volume.mean(dtype=np.float64)), float(volume.std(dtype=np.float64))
    result: Volume = ((volume - less) / over).astype(np.float32)
    return result


class VolumeTransform:
    """Mirrors and moves volumes at random, in training only.

    Args:
        mirror: a volume is flipped along its first axis, left to right, or not, with equal chances.
        shift: a volume is moved by -shift to shift voxels along each axis; what comes in at a border repeats it.
        phase: a ``pb.Phase``; in TEST volumes stay as they are.
        seed: random choices depend on it, the epoch and the sample, and on nothing else.
    """

    def __init__(self, *, mirror: bool, shift: int, phase: int, seed: int = 0) -> None:
        in_training = phase == pb.TRAIN
        self._mirror = mirror and in_training
        self._shift = shift if in_training else 0
        self._seed = seed

    def check(self, shape: Shape) -> None:
        """Raise a UserError if volumes of ``shape`` (D, H, W) cannot be moved that far."""
        if self._shift >= min(shape):
            raise UserError(f"shift {self._shift} moves volumes of {'×'.join(map(str, shape))} out of themselves")

    def __call__(self, volumes: Sequence[Volume], draw: Draw, out: NDArray[np.float32]) -> None:
        """Write the transformed ``volumes``, which are those of ``draw``, to ``out`` (N, 1, D, H, W)."""
        flips = below(2, self._hashes("mirror", draw)) if self._mirror else np.zeros(len(volumes), np.int64)
        moves = np.stack([self._moves(axis, draw) for axis in range(3)], axis=1)
        for target, volume, flip, move in zip(out[:, 0], volumes, flips.tolist(), moves.tolist(), strict=True):
            flipped = volume[::-1] if flip else volume
            target[...] = flipped[np.ix_(*map(_moved, volume.shape, move))] if any(move) else flipped

    def _moves(self, axis: int, draw: Draw) -> NDArray[np.int64]:
        """By how many voxels each sample is moved along ``axis``."""
        if not self._shift:
            return np.zeros(len(draw.samples), np.int64)
        return below(2 * self._shift + 1, self._hashes(f"shift {axis}", draw)) - self._shift

    def _hashes(self, what: str, draw: Draw) -> NDArray[np.uint64]:
        return hash_samples(derive_seed(self._seed, what), draw.epochs, draw.samples)


def _moved(length: int, by: int) -> NDArray[np.int64]:
    """For each place of an axis the old one whose voxel comes there."""
    return np.clip(np.arange(length) - by, 0, length - 1)
