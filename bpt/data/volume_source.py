"""Labelled volumes in NIfTI files that a text file lists, and batches of them.

What is done to volumes before the net sees them: resampling, intensities, random mirroring and moving.
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
from bpt.base.seeds import derive_seed
from bpt.config.proto import bpt_pb2 as pb
from bpt.data.batches import Batches, empty
from bpt.data.nifti import Volume, import_nibabel, open_nifti, read_nifti
from bpt.data.sampler import SampleDraw, Sampler, below, hash_samples
from bpt.data.source import a_few, ends_of, listed_lines
from bpt.graph.layer_spec import Shape
from bpt.graph.share import Share

Intensity = pb.VolumeDataParameter.Intensity
WITHOUT_VOLUMES = "lists no volumes; write a line for each: its path, then its label"


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
    """Return the intensities of one volume as a VolumeDataParameter's ``intensity`` says.

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

    def __call__(self, volumes: Sequence[Volume], draw: SampleDraw, out: NDArray[np.float32]) -> None:
        """Write the transformed ``volumes``, which are those of ``draw``, to ``out`` (N, 1, D, H, W)."""
        flips = below(2, self._hashes("mirror", draw)) if self._mirror else np.zeros(len(volumes), np.int64)
        moves = np.stack([self._moves(axis, draw) for axis in range(3)], axis=1)
        for target, volume, flip, move in zip(out[:, 0], volumes, flips.tolist(), moves.tolist(), strict=True):
            flipped = volume[::-1] if flip else volume
            target[...] = flipped[np.ix_(*map(_moved, volume.shape, move))] if any(move) else flipped

    def _moves(self, axis: int, draw: SampleDraw) -> NDArray[np.int64]:
        """Return by how many voxels each sample is moved along ``axis``."""
        if not self._shift:
            return np.zeros(len(draw.samples), np.int64)
        return below(2 * self._shift + 1, self._hashes(f"shift {axis}", draw)) - self._shift

    def _hashes(self, what: str, draw: SampleDraw) -> NDArray[np.uint64]:
        return hash_samples(derive_seed(self._seed, what), draw.epochs, draw.samples)


def _moved(length: int, by: int) -> NDArray[np.int64]:
    """Return for each place of an axis the old one whose voxel comes there."""
    return np.clip(np.arange(length) - by, 0, length - 1)


CACHE_BYTES = 2**30
LARGEST_LABEL = 2**24  # float32, which labels become, has all integers up to here
_ENTRY = re.compile(r"(?P<name>.*\S)\s+(?P<label>\S+)")
_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)


class VolumeEntry(NamedTuple):
    """A line of a list: the volume's file, its label, and where the line stands ("list.txt:3")."""

    path: Path
    label: int
    place: str


class VolumeSource:
    """The volumes that ``path`` lists, one a line: its file's path, which may contain spaces, and then its label.

    Each comes in canonical axes (``read_nifti``), resampled (``resample``) and with its intensities as wanted
    (``normalise``). The first volumes that are read stay in memory, as long as they have room; the others are read
    again each time. None is ever dropped for another: in an order that goes round, that one would be wanted last.

    Args:
        path: the list.
        root_folder: before each path that is not absolute; empty: the list's folder.
        shape: (D, H, W), the voxels of each volume.
        intensity: a ``VolumeDataParameter.Intensity``.
        cache_bytes: that volumes kept in memory may have, 1 GiB by default: 8192 volumes of 32×32×32.

    Attributes:
        path: the list, as the user wrote it.
        entries: its lines.

    Raises:
        FileError: the list or a file is missing, a label is no integer up to 2²⁴, nothing is listed, or the first file
            is not NIfTI.
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
            open_nifti(first.path)  # a list of other files is found before the run; each file is looked at when read
        except FileError as error:
            raise FileError(first.place, str(error)) from None

    def __len__(self) -> int:
        return len(self.entries)

    def read(self, index: int) -> Volume:
        """Volume ``index``: (D, H, W). It may be kept, so it must not be written to.

        Raises:
            DataError: its file cannot be used; names the file, and the line that lists it.
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
        """Give the memory back. No file stays open."""
        self._cache = {}


def list_volumes(path: str, root_folder: str = "") -> list[VolumeEntry]:
    """Return the lines of the list at ``path``; see ``VolumeSource``. Empty lines do not count.

    Raises:
        FileError: the list or a file is missing, a label is no integer up to 2²⁴, or nothing is listed.
    """
    folder = Path(root_folder) if root_folder else Path(path).parent
    lines = listed_lines(path, "that lists volumes, each line a path and a label", WITHOUT_VOLUMES)
    return [volume_entry(line, folder, f"{path}:{number}") for number, line in lines]


def volume_entry(line: str, folder: Path, place: str) -> VolumeEntry:
    """Return what a ``line`` of a list says; see list_volumes.

    Args:
        folder: that relative paths start from.
        place: the list and the line, for messages.
    """
    found = _ENTRY.fullmatch(line)
    if not found:
        raise FileError(place, f'"{excerpt(line)}" is a path or a label, not both: write the path, then the label')
    name, label = found["name"], found["label"]
    if not _INTEGER.fullmatch(label):
        given = f'the label of "{excerpt(name)}" is "{excerpt(label)}"'
        raise FileError(place, f"{given}, not an integer; the label is the last word")
    if abs(float(label)) > LARGEST_LABEL:
        raise FileError(place, f'the label of "{excerpt(name)}" is {excerpt(label)}; float32 has no such integer')
    path = folder / name
    if not os.path.isfile(path):
        raise FileError(place, f'lists "{name}", which does not exist (looked for {path.absolute()})')
    return VolumeEntry(path, int(label), place)


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
