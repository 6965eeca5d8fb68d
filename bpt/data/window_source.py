"""WindowSource: the foreground and background windows of images in a text file (R-CNN's format)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bpt.base.errors import DataError, FileError, excerpt
from bpt.base.user_files import UnreadableError, read_bytes
from bpt.data.image import Pixels, decode_image, import_pillow
from bpt.data.source import a_few, ends_of, listed_lines, slash_hint

CHANNELS = 3  # every image is read as color
_HEAD = ("image index", "path", "channels", "height", "width", "number of windows")
_COLUMNS = 6  # class, overlap, x1, y1, x2, y2
_LABEL, _OVERLAP = 0, 1


class ImageWindow(NamedTuple):
    """A window: the number of its image, its label (0: background), and its first and last pixel, both inside."""

    image: int
    label: int
    x1: int
    y1: int
    x2: int
    y2: int


class WindowSource:
    """The windows that the file ``path`` lists.

    For each image the file has these lines::

        # 0                          the number of the image, from 0
        images/000001.jpg
        3                            channels
        375                          height
        500                          width
        2                            windows, each a line: class overlap x1 y1 x2 y2
        7 0.81 10 20 110 220
        0 0.12 0 0 499 374

    Args:
        path: the file; empty lines do not count.
        root_folder: the prefix of each image's path, joined without a slash.
        fg_threshold: windows with at least this overlap with an object are foreground.
        bg_threshold: other windows with less overlap than this are background; the rest is not used.
        cache: whether image files stay in memory after they have been read.

    Attributes:
        path: the argument ``path``.
        foreground, background: the windows, in the file's order: (n, 6), the numbers of an ``ImageWindow``.

    Raises:
        FileError: the file is missing, or has another form.
        UserError: the package Pillow is missing.
    """

    def __init__(
        self, path: str, *, root_folder: str = "", fg_threshold: float, bg_threshold: float, cache: bool = False
    ) -> None:
        import_pillow()
        self.path = path
        self._root_folder = root_folder
        self._files: list[str] = []
        self._numbers: list[int] = []  # numbers of the lines that name the files
        self._cache: dict[int, bytes] | None = {} if cache else None
        windows, overlaps = self._read_all()
        is_foreground = overlaps >= np.float32(fg_threshold)
        self.foreground = windows[is_foreground]
        self.background = windows[~is_foreground & (overlaps < np.float32(bg_threshold))]
        self.background[:, 1] = 0
        wrong = self.foreground[self.foreground[:, 1] < 1]
        if len(wrong):
            window = ImageWindow(*wrong[0].tolist())
            raise FileError(
                self._place(window.image),
                f"a foreground window (overlap of at least {fg_threshold:g}) has the class {window.label}; "
                "classes of objects are 1 or more",
            )

    def read(self, image: int) -> Pixels:
        """Return image number ``image`` in color (3, H, W); any thread may call this.

        Raises:
            DataError: the image cannot be used; the message names the window file, the line and the image file.
        """
        file = self._root_folder + self._files[image]
        try:
            content = self._cache.get(image) if self._cache is not None else None
            if content is None:
                content = read_bytes(file)
                if self._cache is not None:
                    self._cache[image] = content
            return decode_image(content, CHANNELS)
        except UnreadableError as error:
            looked = f"(looked for {Path(file).absolute()}){slash_hint(self._root_folder, self._files[image])}"
            raise DataError(f"{self._place(image)}: {file}: {error} {looked}") from None
        except DataError as error:
            raise DataError(f"{self._place(image)}: {file}: {error}") from None

    def name(self, image: int) -> str:
        """Return the line that lists ``image``, and its file, for messages."""
        return f"{self._place(image)}: {self._root_folder}{self._files[image]}"

    def glance(self) -> Iterator[bytes]:
        """Yield the windows and the ends of a few files, for ``Comparable``."""
        yield self.foreground.tobytes()
        yield self.background.tobytes()
        for image in a_few(len(self._files)):
            yield ends_of(self._root_folder + self._files[image])

    def close(self) -> None:
        """Free the memory; no file stays open."""
        self._cache = None

    def _place(self, image: int) -> str:
        return f"{self.path}:{self._numbers[image]}"

    def _read_all(self) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return all windows (n, 6), and their overlaps (n,)."""
        lines = _lines(self.path)
        blocks = []
        at = 0
        while at < len(lines):
            at = self._head(lines, at)
            count = _number(self.path, lines[at - 1], _HEAD[-1])
            rows = lines[at : at + count]
            table = _table(self.path, rows, count)
            blocks.append(np.column_stack((np.full(count, len(self._files) - 1), table)))
            at += count
        table = np.concatenate(blocks)
        return table[:, (0, 1, 3, 4, 5, 6)].astype(np.int64), table[:, 2].astype(np.float32)

    def _head(self, lines: list[tuple[int, str]], at: int) -> int:
        """Read the lines before an image's windows, and return the index of the next line."""
        head = lines[at : at + len(_HEAD)]
        number, first = head[0]
        if not first.startswith("#"):
            begin = f'stands where an image begins: "# {len(self._files)}"'
            raise FileError(f"{self.path}:{number}", f'"{excerpt(first)}" {begin}')
        if len(head) < len(_HEAD):
            raise FileError(f"{self.path}:{number}", f"ends before this image's {_HEAD[len(head)]}")
        index = _number(self.path, (number, first[1:].strip()), _HEAD[0])
        if index != len(self._files):
            raise FileError(
                f"{self.path}:{number}", f"image {index} comes where {len(self._files)} is next; they count from 0"
            )
        channels = _number(self.path, head[2], _HEAD[2])
        if channels != CHANNELS:
            raise FileError(
                f"{self.path}:{head[2][0]}",
                f"an image of {channels} channel{'s' * (channels != 1)}; all are read as color, write 3",
            )
        for line, what in zip(head[3:], _HEAD[3:], strict=True):
            _number(self.path, line, what)
        self._files.append(head[1][1])
        self._numbers.append(head[1][0])
        return at + len(_HEAD)


def _lines(path: str) -> list[tuple[int, str]]:
    """Return the lines that are not empty, with their numbers."""
    return list(listed_lines(path, "of windows", 'lists no images; the first one begins with "# 0"'))


def _number(path: str, line: tuple[int, str], what: str) -> int:
    number, text = line
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise FileError(f"{path}:{number}", f'"{excerpt(text)}" stands where an image has its {what}, a number')
    return int(text)


def _table(path: str, rows: list[tuple[int, str]], count: int) -> NDArray[np.float64]:
    """Return the windows of an image: (count, 6)."""
    if len(rows) < count:
        raise FileError(path, f"ends before the last image's windows: {len(rows)} of {count} are there")
    try:
        table = np.array([row.split() for _, row in rows], np.float64).reshape(count, _COLUMNS)
    except ValueError:
        table = np.full((1, 1), np.nan)
    others = np.delete(table, _OVERLAP, 1) if table.shape[1] == _COLUMNS else table
    if np.all(np.abs(table) < 2**31) and np.all(others == np.trunc(others)):
        return table
    number, row = next((number, row) for number, row in rows if not _is_window(row))
    raise FileError(f"{path}:{number}", f'"{excerpt(row)}" is not a window: class overlap x1 y1 x2 y2')


def _is_window(row: str) -> bool:
    try:
        values = [float(word) for word in row.split()]
    except ValueError:
        return False
    whole = values[:_OVERLAP] + values[_OVERLAP + 1 :]
    return len(values) == _COLUMNS and all(abs(value) < 2**31 for value in values) and all(v == int(v) for v in whole)
