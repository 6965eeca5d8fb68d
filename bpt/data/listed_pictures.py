"""Finds the image files in a list of any form or in a folder, and checks that all can be decoded."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bpt.base.errors import BptError, DataError, FileError
from bpt.base.native_paths import native_path
from bpt.base.user_files import check_exists
from bpt.data.image import import_pillow
from bpt.data.image_source import read_image
from bpt.data.record_survey import survey
from bpt.data.source import first_line, listed_lines, read_list, slash_hint
from bpt.data.verify import Verified

ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".ppm", ".pgm", ".pbm", ".tif", ".tiff", ".webp", ".jp2")
_ANNOTATIONS = (".xml", ".json", ".txt")
_LABELLED = re.compile(r"(.*\S)\s+[+-]?[0-9]+", re.ASCII)
_COLOUR = 3


@dataclass(frozen=True)
class ListedPicture:
    """A file that a list names.

    Attributes:
        place: the list and the line; "": the user has named the file.
        file: its path.
        hint: the end of a message about an unreadable file.
    """

    place: str
    file: str
    hint: str = ""

    def check(self) -> None:
        """Decode the image; of a file of annotations, only check that it exists.

        Raises:
            DataError: the file cannot be read or decoded.
        """
        before = f"{self.place}: " if self.place else ""
        try:
            if Path(self.file).suffix.lower() in _ANNOTATIONS:
                check_exists(self.file)
            else:
                read_image(self.file, _COLOUR)
        except (DataError, FileError) as error:
            raise DataError(f"{before}{error}{self.hint}") from None

    @property
    def size(self) -> int:
        """Bytes of the file; 0 if it is not there."""
        try:
            return os.stat(native_path(self.file)).st_size
        except (OSError, ValueError):
            return 0


class ListedFile(Protocol):
    """An item of a list: a picture, a volume or a clip."""

    def check(self) -> None:
        """Read it, or raise a BptError."""

    @property
    def size(self) -> int:
        """Bytes of its file; 0 if it is not there."""


def verify_listed(
    path: str, find: Callable[[], Sequence[ListedFile]], tell: Callable[[int], None], what: str = "file"
) -> Verified:
    """Decode all files that ``find`` returns for ``path``, in threads; report errors instead of raising them.

    Args:
        tell: function that gets the bytes of each file that has been read.
        what: the word for one file.
    """
    try:
        pictures = find()
        if any(isinstance(picture, ListedPicture) for picture in pictures):
            import_pillow()
    except BptError as error:
        return Verified(path, "", False, (str(error),))
    found = survey(len(pictures), lambda index: pictures[index].check(), lambda index: tell(pictures[index].size))
    files = len(pictures)
    return Verified(path, f"{files} {what}{'s' * (files != 1)}", False, tuple(found.texts()))


def pictures_in(folder: str) -> list[ListedPicture]:
    """Return the files with an image's suffix in a folder and its folders, by name."""
    found = sorted(path for path in Path(folder).rglob("*") if path.suffix.lower() in ENDINGS and not path.is_dir())
    return [ListedPicture("", str(path)) for path in found]


def is_window_file(path: str) -> bool:
    """Return whether the text at ``path`` has the form of a window file: the number of an image in its first line."""
    return re.fullmatch(r"#\s*[0-9]+", first_line(path)) is not None


def lists_pictures(path: str) -> bool:
    """Return whether the text at ``path`` lists pictures, judged by the first file's suffix or content."""
    line = first_line(path)
    if not line:
        return False
    names = _names(line, ("", os.path.dirname(path)))
    return Path(names[0]).suffix.lower() in ENDINGS or _begins_as_picture(names[0], path)


def _begins_as_picture(name: str, listing: str) -> bool:
    for folder in ("", os.path.dirname(listing)):
        try:
            read_image(os.path.join(folder, name), _COLOUR)
        except DataError:
            continue
        return True
    return False


def listed_pictures(path: str, root_folder: str | None = None) -> list[ListedPicture]:
    """Return the files that the list at ``path`` names, one or two a line, with or without a label.

    Args:
        root_folder: the prefix of each name, joined without a slash; ``None``: names start in the working folder, or in
            the list's folder.

    Raises:
        FileError: the list cannot be read, or is empty.
    """
    lines = listed_lines(path, "that lists images", "lists no images; write a line for each")
    return [picture for number, line in lines for picture in _of_line(path, number, line, root_folder)]


def _of_line(path: str, number: int, line: str, root: str | None) -> Iterator[ListedPicture]:
    folders = ("", os.path.dirname(path)) if root is None else ()
    for name in _names(line, folders, root or ""):
        hint = slash_hint(root or "", name)
        yield ListedPicture(f"{path}:{number}", _placed(name, folders, root or ""), hint)


def _placed(name: str, folders: Sequence[str], root: str) -> str:
    places = [os.path.join(folder, name) for folder in folders] or [root + name]
    return next((place for place in places if os.path.exists(native_path(place))), places[0])


def _names(line: str, folders: Sequence[str], root: str = "") -> list[str]:
    """Return the names of files in a line: the whole line, the line without a label, or each word."""

    def is_there(name: str) -> bool:
        return os.path.exists(native_path(_placed(name, folders, root)))

    labelled = _LABELLED.fullmatch(line)
    if is_there(line) and not (labelled and is_there(labelled[1])):
        return [line]
    if labelled:
        return [labelled[1]]
    words = line.split()
    if len(words) == 1 or all(is_there(word) for word in words):
        return words
    known = ENDINGS + _ANNOTATIONS
    return words if all(Path(word).suffix.lower() in known for word in words) else [line]


def window_file_pictures(path: str, root_folder: str | None = None) -> list[ListedPicture]:
    """Return the image files that a window file names, in the lines after each image's number.

    Raises:
        FileError: the window file cannot be read, or names no image.
    """
    folders = ("", os.path.dirname(path)) if root_folder is None else ()
    found = []
    is_next = False
    for number, line in enumerate(read_list(path, "that lists windows"), 1):
        name = line.strip()
        if is_next and name:
            hint = slash_hint(root_folder or "", name)
            found.append(ListedPicture(f"{path}:{number}", _placed(name, folders, root_folder or ""), hint))
        is_next = (is_next and not name) or name.startswith("#")
    if not found:
        raise FileError(path, "names no image")
    return found
