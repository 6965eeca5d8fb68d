"""Finds the volumes, or the clips of videos, in a list, and checks that each can be read."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bpt.base.errors import DataError, FileError
from bpt.data.clip_source import ClipSource
from bpt.data.nifti import import_nibabel, read_nifti
from bpt.data.source import first_line, listed_lines
from bpt.data.volume_source import WITHOUT_VOLUMES, volume_entry

_ENDINGS = (".nii", ".nii.gz", ".hdr", ".img")
_CLIP = re.compile(r"\S.*\s[0-9]+\s+[0-9]+", re.ASCII)


@dataclass(frozen=True)
class ListedVolume:
    """A line of a list of volumes.

    Attributes:
        place: the list and the line.
        line: its text, a path and a label.
        folder: the folder from which the path starts.
    """

    place: str
    line: str
    folder: Path

    def check(self) -> None:
        """Read the volume, and raise an error if that is impossible.

        Raises:
            FileError: the line is wrong, or the file is missing or cannot be read.
            DataError: the file is damaged.
        """
        entry = volume_entry(self.line, self.folder, self.place)
        try:
            read_nifti(entry.path)
        except FileError as error:
            raise DataError(f"{self.place}: {error}") from None

    @property
    def size(self) -> int:
        """Bytes of the file; 0 if it is not there."""
        try:
            return os.stat(volume_entry(self.line, self.folder, self.place).path).st_size
        except (FileError, OSError):
            return 0


@dataclass(frozen=True)
class ListedClip:
    """Clip ``index`` of ``source``."""

    source: ClipSource
    index: int

    def check(self) -> None:
        """Decode the clip's frames; raise a DataError if that is impossible."""
        self.source.read(self.index)

    @property
    def size(self) -> int:
        """Return the bytes of the file with the clip's first frame; 0 if the file is missing."""
        try:
            return os.stat(self.source.first_file(self.index)).st_size
        except OSError:
            return 0


def listed_volumes(path: str, root_folder: str = "") -> Sequence[ListedVolume]:
    """Return the lines of the list of volumes at ``path``, whose form VolumeSource describes.

    Raises:
        FileError: the list cannot be read, or is empty.
        UserError: the package nibabel is missing.
    """
    import_nibabel()
    folder = Path(root_folder) if root_folder else Path(path).parent
    lines = listed_lines(path, "that lists volumes", WITHOUT_VOLUMES)
    return [ListedVolume(f"{path}:{number}", line, folder) for number, line in lines]


def lists_volumes(path: str) -> bool:
    """Return whether the first file that the text at ``path`` names has a volume's suffix."""
    return any(word.lower().endswith(_ENDINGS) for word in first_line(path).split())


def lists_clips(path: str) -> bool:
    """Return whether the first line of the text at ``path`` has the form of a clip: a video and two numbers."""
    return _CLIP.fullmatch(first_line(path)) is not None
