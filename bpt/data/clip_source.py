"""Clips, which are frames of the videos in a list (C3D's format), and batches of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from torch import Tensor

from bpt.base.errors import DataError, FileError, excerpt
from bpt.data.batches import ImageBatches
from bpt.data.image import import_pillow
from bpt.data.image_source import LARGEST_LABEL
from bpt.data.opencv_resize import resize
from bpt.data.prefetch import Workers
from bpt.data.sampler import SampleDraw, Sampler
from bpt.data.source import Sample, a_few, ends_of, listed_lines, slash_hint
from bpt.data.transform import Transform
from bpt.data.video_frames import Frames
from bpt.graph.layer_spec import Shape
from bpt.graph.share import Share


class ClipSource:
    """The clips that ``path`` lists: a line has a video, the number of the first frame, and the label.

    A sample is the frames of a clip, one below the other in each channel: (channels · frames, H, W).

    Args:
        videos: the reader of videos.
        root_folder: the prefix of each path, joined without a slash.
        frames: number of frames of a clip.
        rate: step between frames: a clip has every ``rate``-th frame of the video.
        size: (height, width) to which frames are resized; ``()`` keeps their size.
        channels: 1 or 3.

    Raises:
        FileError: the list is missing, or a line has another form.
    """

    def __init__(
        self,
        path: str,
        videos: Frames,
        *,
        root_folder: str = "",
        frames: int,
        rate: int = 1,
        size: Shape = (),
        channels: int = 3,
    ) -> None:
        import_pillow()
        self._videos = videos
        self.path = path
        self._root, self._frames, self._rate, self._size, self._channels = root_folder, frames, rate, size, channels
        self._entries: list[tuple[str, int, int, int]] = []
        remedy = "lists no clips; write a line for each: video, first frame, label"
        for number, line in listed_lines(path, "that lists clips", remedy):
            words = line.rsplit(maxsplit=2)
            if len(words) < 3 or not all(map(_is_number, words[1:])):
                problem = (
                    "needs a video, the number of the clip's first frame, and a label, integers of at "
                    f"most {LARGEST_LABEL}"
                )
                raise FileError(f"{path}:{number}", f'"{excerpt(line.strip())}" {problem}')
            self._entries.append((words[0].strip(), int(words[1]), int(words[2]), number))

    def __len__(self) -> int:
        return len(self._entries)

    def read(self, index: int) -> Sample:
        """Return clip ``index``; any thread may call this.

        Raises:
            DataError: the clip cannot be used; the message names list, line and file.
        """
        video, first, label, number = self._entries[index]
        numbers = range(first, first + self._frames * self._rate, self._rate)
        try:
            frames = self._videos.read(self._root + video, numbers, self._channels)
        except DataError as error:
            raise DataError(f"{self.path}:{number}: {error}{slash_hint(self._root, video)}") from None
        if self._size:
            frames = [resize(frame, *self._size) for frame in frames]
        if len({frame.shape for frame in frames}) > 1:
            raise DataError(f"{self.path}:{number}: {self._root}{video}: its frames are not of one size")
        clip = np.stack(frames, 1)
        return Sample(f"{video} {first}", clip.reshape(-1, *clip.shape[2:]), float(label))

    def first_file(self, index: int) -> str:
        """Return the file that contains the first frame of clip ``index``."""
        video, first, *_ = self._entries[index]
        return self._videos.first_file(self._root + video, first)

    def begin(self, index: int) -> Callable[[], Sample]:
        return partial(self.read, index)

    def glance(self) -> Iterator[bytes]:
        yield repr([entry[1:3] for entry in self._entries]).encode()
        for index in a_few(len(self)):
            yield ends_of(self.first_file(index))

    def close(self) -> None:
        """Do nothing: no file stays open."""


def _is_number(word: str) -> bool:
    return word.isascii() and word.isdecimal() and len(word) < 12 and int(word) <= LARGEST_LABEL


class ClipBatches(ImageBatches):
    """Batches of (data (B, C, frames, h, w), label (B,)); all frames of a clip have the same random transform."""

    def __init__(
        self, source: ClipSource, sampler: Sampler, transform: Transform, share: Share, workers: Workers, frames: int
    ) -> None:
        super().__init__(source, sampler, transform, share, workers)
        self._frames = frames

    def _read(self, draw: SampleDraw) -> tuple[Tensor, ...]:
        data, label = super()._read(draw)
        return data.view(len(data), data.shape[1] // self._frames, self._frames, *data.shape[2:]), label
