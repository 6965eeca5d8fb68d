"""ImageSource: labelled image files that a text file lists."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from bpt.base.errors import DataError, FileError, UserError, excerpt
from bpt.base.user_files import UnreadableError, read_bytes
from bpt.data.image import Pixels, decode_image, import_pillow
from bpt.data.opencv_resize import resize
from bpt.data.source import Sample, a_few, ends_of, listed_lines, slash_hint
from bpt.graph.layer_spec import Shape

LARGEST = 2**28  # bytes of an image; otherwise a digit too many in a text could take all memory
LARGEST_LABEL = 2**24  # labels become float32, which has all integers up to this
_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)


class ImageSource:
    """The image files in the list ``path``: each line has a file's path, which may contain spaces, and its label.

    Args:
        path: the list; empty lines do not count.
        root_folder: the prefix of each path, joined without a slash, so it should end with "/"; without it paths start
            at the working folder.
        size: (height, width) to which images are resized (``resize``); ``()`` keeps their size.
        channels: number of channels to which images are converted, 1 or 3.
        remedy: the remedy for an unreadable image, for messages.

    Raises:
        FileError: the list is missing, or a line has another form.
        UserError: images of ``size`` would take more than ``LARGEST`` bytes, or the package Pillow is missing.
    """

    def __init__(
        self, path: str, *, root_folder: str = "", size: Shape = (), channels: int = 3, remedy: str = ""
    ) -> None:
        import_pillow()
        if size and math.prod(size) * channels > LARGEST:
            raise UserError(
                f"images resized to {size[0]} × {size[1]} take {math.prod(size) * channels / 2**30:.3g} GiB each; "
                f"more than {LARGEST / 2**30:g} GiB are not possible"
            )
        self.path = path
        self._root_folder = root_folder
        self._size = size
        self._channels = channels
        self._remedy = f"; {remedy}" if remedy else ""
        self._names: list[str] = []
        labels, numbers = [], []
        remedy = "lists no images; write a line for each: its path, then its label"
        for number, line in listed_lines(path, "that lists images, each line a path and a label", remedy):
            name, label = _entry(line, f"{path}:{number}")
            self._names.append(name)
            labels.append(label)
            numbers.append(number)
        self._labels, self._numbers = np.array(labels), np.array(numbers)  # a list may have millions of lines

    def __len__(self) -> int:
        return len(self._names)

    def read(self, index: int) -> Sample:
        """Return image ``index``; any thread may call this.

        Raises:
            DataError: the image cannot be used; the message names list, line and file.
        """
        return Sample(self._names[index], self._image(index), float(self._labels[index]))

    def begin(self, index: int) -> Callable[[], Sample]:
        return partial(self.read, index)

    def glance(self) -> Iterator[bytes]:
        yield self._labels.tobytes()
        for index in a_few(len(self)):
            yield ends_of(self._root_folder + self._names[index])

    def close(self) -> None:
        """Do nothing: no file stays open."""

    def _image(self, index: int) -> Pixels:
        file = self._root_folder + self._names[index]
        try:
            image = read_image(file, self._channels)
        except DataError as error:
            hint = slash_hint(self._root_folder, self._names[index])
            raise DataError(f"{self.path}:{self._numbers[index]}: {error}{hint or self._remedy}") from None
        return resize(image, *self._size) if self._size else image


def read_image(file: str, channels: int) -> Pixels:
    """Return the image in ``file`` with 1 or 3 ``channels``; raise a DataError that names the file if it is damaged."""
    try:
        return decode_image(read_bytes(file), channels)
    except UnreadableError as error:
        looked = "" if os.path.isabs(file) else f" (looked for {Path(file).absolute()})"
        raise DataError(f"{file}: {error}{looked}") from None
    except DataError as error:
        raise DataError(f"{file}: {error}") from None


def _entry(line: str, place: str) -> tuple[str, int]:
    name, _, label = line.rpartition(" ")
    if not name.strip():
        both = "is a path or a label, not both: write the path, a space, then the label"
        raise FileError(place, f'"{excerpt(label)}" {both}')
    return name.strip(), label_of(name, label, place)


def label_of(name: str, label: str, place: str) -> int:
    """Return the label of the file ``name`` in a list; raise a FileError if it is not an integer of float32.

    Args:
        place: the list and the line, for messages.
    """
    if not _INTEGER.fullmatch(label):
        integer = "not an integer; the label is the last word"
        raise FileError(place, f'the label of "{excerpt(name)}" is "{excerpt(label)}", {integer}')
    if abs(float(label)) > LARGEST_LABEL:
        raise FileError(place, f'the label of "{excerpt(name)}" is {excerpt(label)}; float32 has no such integer')
    return int(label)
