"""What every source tells: of a slash that a root folder's name lacks, and at a glance."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import h5py
import nibabel
import numpy as np
import pytest
from PIL import Image

from bpt.data.hdf5_file import Hdf5Source
from bpt.data.image_source import ImageSource
from bpt.data.lmdb_file import LmdbSource
from bpt.data.source import Comparable, a_few, digest_of, ends_of, slash_hint, slash_remedy
from bpt.data.volume_source import VolumeSource
from bpt.data.window_source import WindowSource
from tests.support.lmdbs import write_images


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "set_0.png").touch()
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("root", "remedy"), [("set", ', so write "set/"'), ("set/", ""), ("no", ""), ("", "")])
def test_remedy(root: str, remedy: str) -> None:
    assert slash_remedy(root) == remedy
    hint = f'; paths begin with the root folder as it is, "{root}"{remedy}' if remedy else ""
    assert slash_hint(root, "a.png") == hint


@pytest.mark.parametrize("name", ["/a.png", "_0.png"])
def test_no_slash_is_missing(name: str) -> None:
    """The second image is there, and has another fault."""
    assert slash_hint("set", name) == ""


def images(folder: Path, last: int) -> ImageSource:
    folder.mkdir()
    for index in range(6):
        Image.fromarray(np.full((4, 5, 3), last if index == 5 else index, np.uint8)).save(folder / f"{index}.png")
    (folder / "list").write_text("".join(f"{folder}/{index}.png {index}\n" for index in range(6)))
    return ImageSource(str(folder / "list"))


def volumes(folder: Path, last: int) -> VolumeSource:
    folder.mkdir()
    for index in range(6):
        values = np.full((2, 3, 4), last if index == 5 else index, np.float32)
        nibabel.save(nibabel.Nifti1Image(values, np.eye(4)), folder / f"{index}.nii")
    (folder / "list").write_text("".join(f"{index}.nii {index}\n" for index in range(6)))
    return VolumeSource(str(folder / "list"), "", (2, 3, 4), 0)


def windows(folder: Path, last: int) -> WindowSource:
    folder.mkdir()
    Image.fromarray(np.full((4, 5, 3), last, np.uint8)).save(folder / "0.png")
    (folder / "list").write_text(f"# 0\n{folder}/0.png\n3\n4\n5\n1\n1 0.9 0 0 3 3\n")
    return WindowSource(str(folder / "list"), fg_threshold=0.5, bg_threshold=0.5)


def records(folder: Path, last: int) -> LmdbSource:
    return LmdbSource(write_images(folder, [np.full((1, 2, 2), last if index == 5 else index) for index in range(6)]))


def rows(folder: Path, last: int) -> Hdf5Source:
    folder.mkdir()
    with h5py.File(folder / "0.h5", "w") as file:
        file["data"] = [0, 1, 2, 3, 4, last]
    (folder / "list").write_text("0.h5\n")
    return Hdf5Source(str(folder / "list"), ["data"])


@pytest.mark.parametrize("make", [images, volumes, windows, records, rows])
def test_a_glance_tells_other_data_and_not_other_paths(make: Callable[[Path, int], Comparable], tmp_path: Path) -> None:
    here, copy, other = (digest_of(make(tmp_path / name, last)) for name, last in (("a", 7), ("b", 7), ("c", 8)))
    assert here == copy != other
    assert re.fullmatch("[0-9a-f]{16}", here)


def test_a_few_are_spread() -> None:
    assert [a_few(count) for count in (0, 1, 2, 3, 4, 10, 100)] == [
        [], [0], [0, 1], [0, 1, 2], [0, 1, 2, 3], [0, 3, 6, 9], [0, 33, 66, 99],
    ]  # fmt: skip


def test_ends_of_files(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for size in (0, 1, 70_000, 300_000):
        content = np.random.default_rng(size).integers(0, 256, size, np.uint8).tobytes()
        path.write_bytes(content)
        ends = content if size <= 2**17 else content[: 2**16] + content[-(2**16) :]
        assert ends_of(path) == size.to_bytes(8, "little") + ends
