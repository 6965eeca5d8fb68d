"""Lists of images, HDF5 files, windows and volumes, logs of training, and JSON files that people may edit."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np

from bpt.apps.plot.training_log import read_log, write_tables
from bpt.data.hdf5_file import Hdf5Source
from bpt.data.image_source import ImageSource
from bpt.data.volume_source import list_volumes
from bpt.data.window_batches import WindowCrop
from bpt.data.window_source import ImageWindow, WindowSource
from tests.fuzz import seeds
from tests.fuzz.engine import Target
from tests.fuzz.mutations import mutate_bytes, mutate_text

_WINDOWS = (
    b"# 0\nimages/im0.png\n3\n8\n8\n2\n1 0.9 0 0 3 3\n0 0.1 1 1 5 4\n# 1\nimages/im1.png\n3\n8\n8\n1\n2 0.75 1 2 3 4\n"
)


_WORDS = (
    "images/im0.png", "im1.png", "h0.h5", "data/h1.h5", "# 1", "#", "\n", "\r", "\x0b", "\x85", "\0", "data", "..",
)  # fmt: skip


_LOG_WORDS = (
    "Iteration 10, loss = 0.5", "Iteration 10", "Testing net (#1)", "lr = 0.1", "Test net output #0: accuracy = 0.5",
    "Train net output #0: loss = 1 (* 1 = 1 loss)", "Solving LeNet", "I0229 18:05:09.083197 ",
    "I20261120 18:05:09.083197 ",
    "(", "#", "=", "loss", "nan", "1.2.3", "-",
)  # fmt: skip


class ImageLists(Target):
    """ImageData's lists, and the first images of them."""

    name = "image-list"
    suffix = ".txt"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        images = seeds.copy_data(folder) / "images"
        images.joinpath("im 2.png").write_bytes(images.joinpath("im2.png").read_bytes())
        self._root = f"{images}/"

    def case(self, rng: random.Random) -> bytes:
        return mutate_text(rng, (b"im0.png 0\nim1.png 1\nim 2.png 3\nim3.png 7\n", b"im1.png 5\n"), _WORDS)

    def run(self, case: bytes) -> None:
        source = ImageSource(self.file(case), root_folder=self._root, size=(5, 6))
        for index in range(min(3, len(source))):
            source.read(index)


class Hdf5Lists(Target):
    """HDF5Data's lists."""

    name = "hdf5-list"
    suffix = ".txt"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        seeds.copy_data(folder)

    def case(self, rng: random.Random) -> bytes:
        return mutate_text(rng, (b"data/h0.h5\ndata/h1.h5\n", b"data/h1.h5\n"), _WORDS)

    def run(self, case: bytes) -> None:
        Hdf5Source(self.file(case), ("data", "label"))


class Hdf5Files(Target):
    """HDF5Data's files."""

    name = "hdf5-data"
    suffix = ".h5"

    def case(self, rng: random.Random) -> bytes:
        return mutate_bytes(rng, seeds.files("data/h?.h5"))

    def run(self, case: bytes) -> None:
        self.file(case)
        listed = self.folder / "list.txt"
        listed.write_text("case.h5")
        source = Hdf5Source(str(listed), ("data", "label"))
        source.rows(np.arange(min(3, source.file_sizes[0])))


class WindowFiles(Target):
    """WindowData's files, and the first windows cut out."""

    name = "windows"
    suffix = ".txt"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        seeds.copy_data(folder)

    def case(self, rng: random.Random) -> bytes:
        return mutate_text(rng, (_WINDOWS,), _WORDS)

    def run(self, case: bytes) -> None:
        source = WindowSource(self.file(case), root_folder="data/", fg_threshold=0.5, bg_threshold=0.5)
        for windows in (source.foreground, source.background):
            for row in windows[:2].tolist():
                window = ImageWindow(*row)
                for square in (False, True):
                    WindowCrop(6, 1, square=square)(source.read(window.image), window, mirror=square)


class VolumeLists(Target):
    """VolumeData's lists."""

    name = "volume-list"
    suffix = ".txt"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        for name in ("a.nii", "b c.nii.gz"):
            folder.joinpath(name).write_bytes(b"")

    def case(self, rng: random.Random) -> bytes:
        return mutate_text(rng, (b"a.nii 0\nb c.nii.gz 1\n",), _WORDS)

    def run(self, case: bytes) -> None:
        list_volumes(self.file(case))


class Logs(Target):
    """Logs of training, and the tables of them."""

    name = "log"
    short = 60
    suffix = ".log"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        logs = (text for text in seeds.files("cli/*.stderr.txt") if b"Iteration" in text)
        self._seeds = [log[-6000:] for log in logs]

    def case(self, rng: random.Random) -> bytes:
        return mutate_text(rng, self._seeds, _LOG_WORDS)

    def run(self, case: bytes) -> None:
        path = self.file(case)
        write_tables(read_log(path), path, str(self.folder))


TARGETS = (ImageLists, Hdf5Lists, Hdf5Files, WindowFiles, VolumeLists, Logs)
