"""Frames of a video: image files in a folder, or a file of a video, which the package av decodes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from bpt.base.errors import DataError, UserError
from bpt.data.image import Pixels
from bpt.data.image_source import read_image

FRAME = "{:06d}.jpg"
"""The name of a frame's file in the folder of its video."""


class Frames(Protocol):
    """The storage of a video."""

    def read(self, path: str, numbers: range, channels: int) -> list[Pixels]:
        """Return the frames of these ascending ``numbers``, (C, H, W) each, of the video at ``path``.

        Raises:
            DataError: the video, or a frame of it, is not there, or damaged.
        """

    def first_file(self, path: str, number: int) -> str:
        """Return the file that the frame of this number is in."""


class FrameFolder:
    """A folder of image files, ``000001.jpg`` and so on."""

    def read(self, path: str, numbers: range, channels: int) -> list[Pixels]:
        return [read_image(self.first_file(path, number), channels) for number in numbers]

    def first_file(self, path: str, number: int) -> str:
        return f"{path.rstrip('/')}/{FRAME.format(number)}"


class VideoFile:
    """A file that FFmpeg decodes; its first frame has the number 0. Frames are decoded from the first one on."""

    def __init__(self) -> None:
        self._av = import_av()

    def read(self, path: str, numbers: range, channels: int) -> list[Pixels]:
        if not Path(path).is_file():
            looked = "" if os.path.isabs(path) else f" (looked for {Path(path).absolute()})"
            raise DataError(f"{path}: no such file{looked}")
        found, number = [], -1
        try:
            with self._av.open(path) as container:
                for number, frame in enumerate(self._decoded(container, path)):
                    if number in numbers:
                        found.append(_pixels(frame, channels))
                    if number >= numbers[-1]:
                        return found
        except self._av.FFmpegError as error:
            raise DataError(f"{path}: is no video that can be decoded: {error.strerror}") from None
        raise DataError(f"{path}: has {number + 1} frames, which are counted from 0; {numbers[-1]} is asked for")

    def first_file(self, path: str, number: int) -> str:
        return path

    @staticmethod
    def _decoded(container: Any, path: str) -> Iterator[Any]:
        if not container.streams.video:
            raise DataError(f"{path}: has no pictures")
        yield from container.decode(video=0)


def _pixels(frame: Any, channels: int) -> Pixels:
    """Blue, green and red, or gray: (C, H, W)."""
    pixels = frame.to_ndarray(format="gray" if channels == 1 else "bgr24")
    image: Pixels = pixels[None] if channels == 1 else pixels.transpose(2, 0, 1)
    return image


def import_av() -> ModuleType:
    """Return the module ``av``; a UserError that says how to install it if it is missing."""
    try:
        return import_module("av")  # an extra
    except ImportError:
        raise UserError(
            "files of videos need the package av: pip install 'bpt[video]'; or write the frames into a folder "
            "(ffmpeg -i v.avi v/%06d.jpg), list that, and set use_image: true"
        ) from None
