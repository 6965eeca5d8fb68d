"""Labelled volumes in listed NIfTI files, their preprocessing, and batches of them.

The preprocessing is resampling, normalisation of intensities, and random mirroring and shifting.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from bpt.base.errors import DataError, FileError, UserError, excerpt
from bpt.config.proto import bpt_pb2 as pb
from bpt.data.batches import Batches, empty
from bpt.data.image_source import label_of
from bpt.data.nifti import Volume, import_nibabel, open_nifti, read_nifti
from bpt.data.sampler import SampleDraw, Sampler, below
from bpt.data.source import a_few, ends_of, listed_lines
from bpt.graph.layer_spec import Shape, shape_text
from bpt.graph.share import Share

Intensity = pb.VolumeDataParameter.Intensity
WITHOUT_VOLUMES = "lists no volumes; write a line for each: its path, then its label"


def resample(volume: Volume, shape: Shape) -> Volume:
    """Resample ``volume`` (d, h, w) to ``shape`` (D, H, W), by trilinear interpolation between centres of voxels.

    Along each axis the centres of the first and the last voxel do not move, and the others are evenly spaced between
    them: new voxel i of n is at i (m - 1) / (n - 1) of the m old ones, and a single new voxel is in their middle. So a
    ramp stays a ramp, and a volume that has the shape already does not change. Each axis is stretched independently,
    for any lengths of the voxels. There is no smoothing: if a volume shrinks a lot, voxels between the new ones have no
    effect.
    """
    for axis, new in enumerate(shape):
        volume = _along(volume, axis, new)
    return volume


def _along(volume: Volume, axis: int, new: int) -> Volume:
    old = volume.shape[axis]
    if new == old:
        return volume
    # The division by (n - 1) comes last, so that whole numbers stay exact.
    at = np.arange(new) * (old - 1) / (new - 1) if new > 1 else np.array([(old - 1) / 2])
    below_it = at.astype(np.int64)
    above_it = np.minimum(below_it + 1, old - 1)
    part = (at - below_it).astype(np.float32).reshape([-1 if axis == a else 1 for a in range(3)])
    low, high = volume.take(below_it, axis), volume.take(above_it, axis)
    between: Volume = low + (high - low) * part  # in this form equal voxels give exactly equal ones
    return between


def normalise(volume: Volume, intensity: int) -> Volume:
    """Normalise the intensities of a volume by a VolumeDataParameter's ``intensity``.

    RAW does not change them. Z_SCORE subtracts their mean and divides by their standard deviation (the population's,
    over all voxels). MIN_MAX maps them to [0, 1].

    Raises:
        DataError: all voxels are equal, so that the divisor would be 0.
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
    """Mirrors and shifts volumes at random, in training only.

    Args:
        mirror: whether to flip volumes along their first axis, left to right, with probability 1/2.
        shift: largest shift along each axis in voxels, in both directions; the volume's border fills the gap.
        phase: a ``pb.Phase``; in TEST volumes do not change.
        seed: random choices depend only on it, the epoch and the sample.
    """

    def __init__(self, *, mirror: bool, shift: int, phase: int, seed: int = 0) -> None:
        in_training = phase == pb.TRAIN
        self._mirror = mirror and in_training
        self._shift = shift if in_training else 0
        self._seed = seed

    def check(self, shape: Shape) -> None:
        """Raise a UserError if ``shift`` is not smaller than ``shape`` (D, H, W)."""
        if self._shift >= min(shape):
            raise UserError(f"shift {self._shift} moves volumes of {shape_text(shape)} out of themselves")

    def __call__(self, volumes: Sequence[Volume], draw: SampleDraw, out: NDArray[np.float32]) -> None:
        """Write the transformed ``volumes``, which are those of ``draw``, to ``out`` (N, 1, D, H, W)."""
        flips = below(2, draw.hashes(self._seed, "mirror")) if self._mirror else np.zeros(len(volumes), np.int64)
        moves = np.stack([self._moves(axis, draw) for axis in range(3)], axis=1)
        for target, volume, flip, move in zip(out[:, 0], volumes, flips.tolist(), moves.tolist(), strict=True):
            flipped = volume[::-1] if flip else volume
            target[...] = flipped[np.ix_(*map(_moved, volume.shape, move))] if any(move) else flipped

    def _moves(self, axis: int, draw: SampleDraw) -> NDArray[np.int64]:
        """Return the shift of each sample along ``axis`` in voxels."""
        if not self._shift:
            return np.zeros(len(draw.samples), np.int64)
        return below(2 * self._shift + 1, draw.hashes(self._seed, f"shift {axis}")) - self._shift


def _moved(length: int, by: int) -> NDArray[np.int64]:
    """Return the old index of the voxel at each index of a shifted axis."""
    return np.clip(np.arange(length) - by, 0, length - 1)


CACHE_BYTES = 2**30
_ENTRY = re.compile(r"(?P<name>.*\S)\s+(?P<label>\S+)")


class VolumeEntry(NamedTuple):
    """A line of a list: the volume's file, its label, and the place of the line ("list.txt:3")."""

    path: Path
    label: int
    place: str


class VolumeSource:
    """The volumes in the list ``path``: each line has a file's path, which may contain spaces, and its label.

    Each volume has canonical axes (``read_nifti``), and is resampled (``resample``) and normalised (``normalise``). The
    first volumes that are read stay in memory up to ``cache_bytes``; the others are read again each time. No volume is
    evicted: in a cyclic order, each would be evicted before its next use.

    Args:
        path: the list.
        root_folder: the folder of paths that are not absolute; empty: the list's folder.
        shape: (D, H, W), the voxels of each volume.
        intensity: a ``VolumeDataParameter.Intensity``.
        cache_bytes: bytes of volumes to keep in memory, by default 1 GiB: 8192 volumes of 32×32×32.

    Attributes:
        path: the list, as the user wrote it.
        entries: its lines.

    Raises:
        FileError: the list or a file is missing, a label is not an integer up to 2²⁴, the list is empty, or the first
            file is not NIfTI.
        UserError: the package nibabel is missing.
    """

    def __init__(
        self, path: str, root_folder: str, shape: Shape, intensity: int, cache_bytes: int = CACHE_BYTES
    ) -> None:
        import_nibabel()
        self.path = path
        self.entries = list_volumes(path, root_folder)
        self._shape = shape
        self._intensity = intensity
        self._room = cache_bytes
        self._cache: dict[int, Volume] = {}
        first = self.entries[0]
        try:
            open_nifti(first.path)  # find a list of other files before the run; each file is checked when it is read
        except FileError as error:
            raise FileError(first.place, str(error)) from None

    def __len__(self) -> int:
        return len(self.entries)

    def read(self, index: int) -> Volume:
        """Return volume ``index``: (D, H, W). The source may keep it, so the caller must not change it.

        Raises:
            DataError: its file cannot be used; the message names the file, and the line that lists it.
        """
        if index in self._cache:
            return self._cache[index]
        entry = self.entries[index]
        try:
            volume = normalise(resample(read_nifti(entry.path), self._shape), self._intensity)
        except FileError as error:
            raise DataError(f"{entry.place}: {error}") from None
        except DataError as error:
            raise DataError(f"{entry.place}: {entry.path}: {error}") from None
        if volume.nbytes <= self._room:
            self._room -= volume.nbytes
            self._cache[index] = volume
        return volume

    def glance(self) -> Iterator[bytes]:
        """Yield the labels and the ends of a few files, for ``Comparable``."""
        yield np.array([entry.label for entry in self.entries]).tobytes()
        for index in a_few(len(self.entries)):
            yield ends_of(self.entries[index].path)

    def close(self) -> None:
        """Free the memory; no file stays open."""
        self._cache = {}


def list_volumes(path: str, root_folder: str = "") -> list[VolumeEntry]:
    """Return the lines of the list at ``path``, whose form ``VolumeSource`` describes; empty lines do not count.

    Raises:
        FileError: the list or a file is missing, a label is not an integer up to 2²⁴, or the list is empty.
    """
    folder = Path(root_folder) if root_folder else Path(path).parent
    lines = listed_lines(path, "that lists volumes, each line a path and a label", WITHOUT_VOLUMES)
    return [volume_entry(line, folder, f"{path}:{number}") for number, line in lines]


def volume_entry(line: str, folder: Path, place: str) -> VolumeEntry:
    """Return the entry in a ``line`` of a list; raise a FileError if it has another form or the file is missing.

    Args:
        folder: the folder from which relative paths start.
        place: the list and the line, for messages.
    """
    found = _ENTRY.fullmatch(line)
    if not found:
        raise FileError(place, f'"{excerpt(line)}" is a path or a label, not both: write the path, then the label')
    name = found["name"]
    label, path = label_of(name, found["label"], place), folder / name
    if not os.path.isfile(path):
        raise FileError(place, f'lists "{name}", which does not exist (looked for {path.absolute()})')
    return VolumeEntry(path, label, place)


class VolumeBatches(Batches[VolumeSource]):
    """Batches of (data (B, 1, D, H, W), label (B,)), where ``shape`` is (D, H, W)."""

    def __init__(
        self, source: VolumeSource, sampler: Sampler, transform: VolumeTransform, shape: Shape, share: Share
    ) -> None:
        super().__init__(source, sampler, share)
        self._transform = transform
        self._shape = shape

    def _read(self, draw: SampleDraw) -> tuple[Tensor, ...]:
        samples = draw.samples.tolist()
        data, label = empty(len(samples), 1, *self._shape), empty(len(samples))
        self._transform([self._source.read(index) for index in samples], draw, data.numpy())
        label.numpy()[:] = [self._source.entries[index].label for index in samples]
        return data, label
