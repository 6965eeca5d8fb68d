"""VolumeSource: labelled volumes in NIfTI files that a text file lists."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

from bpt.data.nifti import Volume, import_nibabel, open_nifti, read_nifti
from bpt.data.volume_transform import normalise, resample
from bpt.errors import DataError, FileError, excerpt
from bpt.graph.spec import Shape
from bpt.proto.files import UnreadableError, read_bytes

CACHE_BYTES = 2**30
LARGEST_LABEL = 2**24  # float32, which labels become, has all integers up to here
_ENTRY = re.compile(r"(?P<name>.*\S)\s+(?P<label>\S+)")
_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)


class Entry(NamedTuple):
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
        self._kept: dict[int, Volume] = {}
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
        if index in self._kept:
            return self._kept[index]
        entry = self.entries[index]
        try:
            volume = normalise(resample(read_nifti(entry.path), self._shape), self._intensity)
        except FileError as error:
            raise DataError(f"{entry.place}: {error}") from None
        except DataError as error:
            raise DataError(f"{entry.place}: {entry.path}: {error}") from None
        if volume.nbytes <= self._room:
            self._room -= volume.nbytes
            self._kept[index] = volume
        return volume

    def close(self) -> None:
        """Give the memory back. No file stays open."""
        self._kept = {}


def list_volumes(path: str, root_folder: str = "") -> list[Entry]:
    """The lines of the list at ``path``; see ``VolumeSource``. Empty lines do not count.

    Raises:
        FileError: the list or a file is missing, a label is no integer up to 2²⁴, or nothing is listed.
    """
    try:
        lines = read_bytes(path).decode("utf-8-sig").splitlines()
    except UnreadableError as error:
        raise FileError(path, f"{error} (looked for {Path(path).absolute()})") from None
    except UnicodeDecodeError:
        raise FileError(path, "is not a text file that lists volumes, each line a path and a label") from None
    folder = Path(root_folder) if root_folder else Path(path).parent
    entries = [_entry(line.strip(), folder, f"{path}:{number}") for number, line in enumerate(lines, 1) if line.strip()]
    if not entries:
        raise FileError(path, "lists no volumes; write a line for each: its path, then its label")
    return entries


def _entry(line: str, folder: Path, place: str) -> Entry:
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
    return Entry(path, int(label), place)
