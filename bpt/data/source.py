"""The protocol of every source of images, and checks of the folder of its files."""

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

_END = 2**16  # bytes

Image: TypeAlias = NDArray[np.uint8] | NDArray[np.float32]
"""An image (C, H, W). Color images have the channels blue, green, red, as in Caffe."""


class Sample(NamedTuple):
    """One record of a source; ``key`` is its name in messages."""

    key: str
    image: Image
    label: float


def read_list(path: str, what: str) -> list[str]:
    """Return the lines of the text file at ``path``.

    Args:
        what: it is, in the words after "is not a text file".

    Raises:
        FileError: it is missing, cannot be read, or is not text.
    """
    try:
        return read_lines(path, what)
    except UnreadableError as error:
        raise FileError(path, f"{error} (looked for {Path(path).absolute()})") from None


def listed_lines(path: str, what: str, remedy: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of the text file at ``path`` that are not empty, stripped, with their numbers.

    Args:
        what: see read_list.
        remedy: says what to do if there are none.

    Raises:
        FileError: it is missing, cannot be read, is not text, or has no such lines.
    """
    is_empty = True
    for number, line in enumerate(read_list(path, what), 1):
        if stripped := line.strip():
            yield number, stripped
            is_empty = False
    if is_empty:
        raise FileError(path, remedy)


def first_line(path: str) -> str:
    """Return the first line of the text at ``path`` that is not empty, stripped; "": there is none."""
    return next((line.strip() for line in read_list(path, "that lists files") if line.strip()), "")


class Comparable(Protocol):
    """A source that ranks on different hosts can compare, because each reads its own copy."""

    path: str  # as the user wrote it, for messages

    def glance(self) -> Iterator[bytes]:
        """Something of a few records, quickly read: the same wherever the source is, whatever its path.

        Nothing at all, if there is nothing to compare. Raises a BptError or OSError if it cannot be read.
        """

    def close(self) -> None:
        """Give the files back. The source is not used afterwards."""


class Source(Comparable, Protocol):
    """A finite list of samples. Used by one thread at a time, except for what ``begin`` returns."""

    def __len__(self) -> int: ...

    def read(self, index: int) -> Sample:
        """Sample ``index`` of ``[0, len)``; a DataError names path and record if it cannot be used."""

    def begin(self, index: int) -> Callable[[], Sample]:
        """Do the part of ``read`` that must be done in order; any thread may do the rest, by calling the result."""


def a_few(count: int) -> list[int]:
    """At most four of ``range(count)``: the first, the last, and two between."""
    return sorted({part * (count - 1) // 3 for part in range(4)}) if count else []


def size_of(images: Iterable[Image]) -> tuple[int, Shape]:
    """Return the channels of the first of ``images``, at least one, and the height and width of all.

    (): they differ.
    """
    shapes = [image.shape for image in images]
    return shapes[0][0], shapes[0][1:] if len(set(shapes)) == 1 else ()


def ends_of(path: str | os.PathLike[str]) -> bytes:
    """Return the size of the file at ``path``, and its first and its last 64 KiB. Raises OSError."""
    with open(native_path(os.fspath(path)), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        head = file.read(_END)
        file.seek(max(_END, size - _END))
        return size.to_bytes(8, "little") + head + file.read(_END)


def digest_of(source: Comparable) -> str:
    """16 hexadecimal digits that tell a glance at ``source`` from one at another; "": there is nothing to compare."""
    content = hashlib.blake2b(digest_size=8)
    seen = False
    try:
        for part in source.glance():
            content.update(len(part).to_bytes(8, "little") + part)
            seen = True
    except (BptError, OSError):  # whoever reads it says what is wrong
        return "cannot be read"
    return content.hexdigest() if seen else ""


def slash_remedy(root: str) -> str:
    """End a message that shows ``root``: to write a slash, if it is a folder and its name lacks that; else ``""``."""
    return f', so write "{root}/"' if os.path.isdir(root) and not root.endswith("/") else ""


def slash_hint(root: str, name: str) -> str:
    """End a message that the image ``root`` + ``name`` cannot be read; ``""`` if no slash is missing between them."""
    remedy = slash_remedy(root)
    if not remedy or name.startswith("/") or os.path.exists(root + name):
        return ""
    return f'; paths begin with the root folder as it is, "{root}"{remedy}'
