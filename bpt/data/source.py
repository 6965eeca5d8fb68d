"""The protocol of all sources of images, the reading of lists, and the comparison of sources between ranks."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bpt.base.errors import BptError, FileError
from bpt.base.native_paths import native_path
from bpt.base.user_files import UnreadableError, read_lines
from bpt.graph.layer_spec import Shape

_END = 2**16  # bytes at each end of a file that ranks compare

Image: TypeAlias = NDArray[np.uint8] | NDArray[np.float32]
"""An image (C, H, W); as in Caffe, color images have the channels blue, green, red."""


class Sample(NamedTuple):
    """A record of a source; ``key`` names it in messages."""

    key: str
    image: Image
    label: float


def read_list(path: str, what: str) -> list[str]:
    """Return the lines of the text file at ``path``.

    Args:
        what: words that follow "is not a text file" in a message, such as "that lists images".

    Raises:
        FileError: the file is missing, cannot be read, or is not text.
    """
    try:
        return read_lines(path, what)
    except UnreadableError as error:
        raise FileError(path, f"{error} (looked for {Path(path).absolute()})") from None


def listed_lines(path: str, what: str, remedy: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of the text file at ``path`` that are not empty, stripped, with their numbers.

    Args:
        what: as in ``read_list``.
        remedy: the message for a file without lines.

    Raises:
        FileError: the file is missing, cannot be read, is not text, or has only empty lines.
    """
    is_empty = True
    for number, line in enumerate(read_list(path, what), 1):
        if stripped := line.strip():
            yield number, stripped
            is_empty = False
    if is_empty:
        raise FileError(path, remedy)


def first_line(path: str) -> str:
    """Return the first line of the text at ``path`` that is not empty, stripped; "" if there is none."""
    return next((line.strip() for line in read_list(path, "that lists files") if line.strip()), "")


class Comparable(Protocol):
    """A source that ranks on different hosts can compare, because each reads its own copy."""

    path: str  # as the user wrote it, for messages

    def glance(self) -> Iterator[bytes]:
        """Yield parts of a few records that are fast to read, and equal for all copies of the source at any path.

        If there is nothing to compare, it yields nothing. It raises a BptError or OSError for an unreadable source.
        """

    def close(self) -> None:
        """Close the files; the source cannot be used afterwards."""


class Source(Comparable, Protocol):
    """A finite list of samples for one thread at a time; any thread may call the functions that ``begin`` returns."""

    def __len__(self) -> int: ...

    def read(self, index: int) -> Sample:
        """Return sample ``index`` of ``[0, len)``; raise a DataError that names path and record if it is unusable."""

    def begin(self, index: int) -> Callable[[], Sample]:
        """Do the part of ``read`` that must happen in order; return a function for the rest, for any thread."""


def a_few(count: int) -> list[int]:
    """Return at most four of ``range(count)``: the first, the last, and two between."""
    return sorted({part * (count - 1) // 3 for part in range(4)}) if count else []


def size_of(images: Iterable[Image]) -> tuple[int, Shape]:
    """Return the channels of the first of ``images``, and the height and width of all; ``()`` if these differ.

    There must be at least one image.
    """
    shapes = [image.shape for image in images]
    return shapes[0][0], shapes[0][1:] if len(set(shapes)) == 1 else ()


def ends_of(path: str | os.PathLike[str]) -> bytes:
    """Return the size of the file at ``path`` with its first and its last 64 KiB; raise an OSError if unreadable."""
    with open(native_path(os.fspath(path)), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        head = file.read(_END)
        file.seek(max(_END, size - _END))
        return size.to_bytes(8, "little") + head + file.read(_END)


def digest_of(source: Comparable) -> str:
    """Return 16 hexadecimal digits that identify the content of ``source``; "" if there is nothing to compare."""
    content = hashlib.blake2b(digest_size=8)
    seen = False
    try:
        for part in source.glance():
            content.update(len(part).to_bytes(8, "little") + part)
            seen = True
    except (BptError, OSError):  # the reader of the data reports the error
        return "cannot be read"
    return content.hexdigest() if seen else ""


def slash_remedy(root: str) -> str:
    """Return the remedy for a message that shows ``root``: add a slash, if it is a folder without one; else ``""``."""
    return f', so write "{root}/"' if os.path.isdir(root) and not root.endswith("/") else ""


def slash_hint(root: str, name: str) -> str:
    """Return a hint about the unreadable image ``root`` + ``name``; ``""`` if no slash is missing between them."""
    remedy = slash_remedy(root)
    if not remedy or name.startswith("/") or os.path.exists(root + name):
        return ""
    return f'; paths begin with the root folder as it is, "{root}"{remedy}'
