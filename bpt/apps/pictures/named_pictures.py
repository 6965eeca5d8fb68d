"""The pictures that a user names: image files, folders of images, and lists, whose lines may end in labels."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from bpt.base.errors import FileError, UsageError
from bpt.base.native_paths import native_path
from bpt.base.user_files import check_exists, file_errors, read_lines
from bpt.data.listed_pictures import ENDINGS

_LABEL = re.compile(r"(.*\S)\s+([0-9]+)", re.ASCII)


class NamedPicture(NamedTuple):
    """A picture, and its class.

    Attributes:
        path: the image file.
        label: the class that a list gives it; ``None``: it is unknown.
    """

    path: str
    label: int | None = None


def pictures(named: Sequence[str]) -> list[NamedPicture]:
    """Return the pictures that ``named`` means, in order.

    A folder means all images in it and in its sub-folders, by name. A list is a text whose name ends in .txt; its paths
    start at its own folder, or at the folder in which bpt runs.

    Raises:
        UsageError: nothing is named, or a folder has no images.
        FileError: a list cannot be read or is empty, or a picture is missing.
    """
    if not named:
        raise UsageError("name images, folders of images, or lists (.txt)")
    return [picture for each in named for picture in _of(each)]


def _of(named: str) -> Iterator[NamedPicture]:
    if os.path.isdir(named):
        found = sorted(path for path in Path(named).rglob("*") if path.suffix.lower() in ENDINGS and not path.is_dir())
        if not found:
            _check_folder(named)
            raise UsageError(f"{named}: no image is in this folder (known: {', '.join(ENDINGS)})")
        yield from (NamedPicture(str(path)) for path in found)
    elif named.lower().endswith(".txt"):
        yield from _listed(named)
    else:
        check_exists(named)
        yield NamedPicture(named)


def _check_folder(path: str) -> None:
    try:
        os.listdir(path)
    except OSError as error:
        raise FileError(path, f"cannot be read: {error.strerror}") from None


def _listed(path: str) -> list[NamedPicture]:
    with file_errors(path):
        lines = read_lines(path, "that lists images")
    rows = {number: line.strip() for number, line in enumerate(lines, 1) if line.strip()}
    if not rows:
        raise FileError(path, "lists no images; write a line for each: its path, and its label if you know it")
    labelled = {number: _LABEL.fullmatch(row) for number, row in rows.items()}
    if all(labelled.values()):
        return [NamedPicture(_there(path, row[1], number), int(row[2])) for number, row in labelled.items() if row]
    return [NamedPicture(_there(path, row, number)) for number, row in rows.items()]


def _there(path: str, name: str, number: int) -> str:
    """Return the path of the file that the list at ``path`` names in line ``number``."""
    if file := _found(path, name):
        return file
    own, _ = places = _places(path, name)
    looked = " and ".join(dict.fromkeys(map(os.path.abspath, places)))
    labelled = _LABEL.fullmatch(name)
    one_of_few = labelled and _found(path, labelled[1])
    remedy = "give all lines a label, or none" if one_of_few else "mend the line, or leave it out"
    try:
        check_exists(own)
    except FileError as error:
        raise FileError(f"{path}:{number}", f"{name}: {error.reason} (looked for {looked}); {remedy}") from None
    return own


def _found(path: str, name: str) -> str:
    return next((file for file in _places(path, name) if os.path.exists(file)), "")


def _places(path: str, name: str) -> tuple[str, str]:
    own, here = os.path.join(os.path.dirname(path), name), name
    return native_path(own), native_path(here)
