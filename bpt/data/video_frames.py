"""Reads frames of a video: image files in a folder, or a video file, which the package av decodes."""

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
    """A reader of the frames of videos."""

    def read(self, path: str, numbers: range, channels: int) -> list[Pixels]:
        """Return the frames with these ascending ``numbers``, each (C, H, W), of the video at ``path``.

        Raises:
            DataError: the video, or one of these frames, is missing or damaged.
        """

    def first_file(self, path: str, number: int) -> str:
        """Return the file that contains frame ``number``."""


class FrameFolder:
    """A folder of image files, ``000001.jpg`` and so on."""

    def read(self, path: str, numbers: range, channels: int) -> list[Pixels]:
        return [read_image(self.first_file(path, number), channels) for number in numbers]

    def first_file(self, path: str, number: int) -> str:
        return f"{path.rstrip('/')}/{FRAME.format(number)}"


class VideoFile:
    """A video file that FFmpeg decodes, from the first frame on; the first frame has the number 0."""

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
    """Return the frame as (C, H, W): blue, green and red, or gray."""
    pixels = frame.to_ndarray(format="gray" if channels == 1 else "bgr24")
    image: Pixels = pixels[None] if channels == 1 else pixels.transpose(2, 0, 1)
    return image


def import_av() -> ModuleType:
    """Return the module ``av``; raise a UserError that says how to install it if it is missing."""
    try:
        return import_module("av")  # an extra
    except ImportError:
        raise UserError(
            "files of videos need the package av: pip install 'bpt[video]'; or write the frames into a folder "
            "(ffmpeg -i v.avi v/%06d.jpg), list that, and set use_image: true"
        ) from None
