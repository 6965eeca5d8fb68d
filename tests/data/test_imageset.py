"""Listed images as an LMDB; Caffe's recordings are checked in tests/tools/test_convert_imageset.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from bpt.base.errors import DataError, FileError
from bpt.data.imageset import ImageConversion, convert_imageset
from bpt.data.lmdb_file import LmdbSource


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Five images of 6×4, each of one colour, and their list; labels are 10 ... 14."""
    lines = []
    for number in range(5):
        red, green, blue = number, 50 + number, 100 + number
        Image.new("RGB", (4, 6), (red, green, blue)).save(tmp_path / f"an image {number}.png")
        lines.append(f"an image {number}.png {10 + number}\n")
    (tmp_path / "list.txt").write_text("".join(lines))
    return tmp_path


def convert(folder: Path, **wanted: Any) -> list[tuple[str, np.ndarray, float]]:
    target = folder / "lmdb"
    assert convert_imageset(f"{folder}/", str(folder / "list.txt"), str(target), ImageConversion(**wanted)) == (5, 0)
    source = LmdbSource(str(target))
    samples = [source.read(index) for index in range(5)]
    source.close()
    return [(sample.key, sample.image, sample.label) for sample in samples]


def test_channels_are_blue_green_red(folder: Path) -> None:
    for number, (key, image, label) in enumerate(convert(folder, check_size=True)):
        assert (key, label) == (f"0000000{number}_an image {number}.png", 10 + number)
        expected = np.array([100 + number, 50 + number, number], np.uint8).reshape(3, 1, 1)
        np.testing.assert_array_equal(image, np.broadcast_to(expected, (3, 6, 4)))


def test_a_shuffled_list_has_the_same_images_in_another_order(folder: Path) -> None:
    found = convert(folder, shuffle=True)
    labels = [label for _, _, label in found]
    assert sorted(labels) == [10, 11, 12, 13, 14]
    assert labels != sorted(labels)
    assert [key[:8] for key, _, _ in found] == [f"0000000{number}" for number in range(5)]
    assert all(image[2, 0, 0] == label - 10 for _, image, label in found)


@pytest.mark.parametrize(("end", "off"), [("png", 0), ("jpg", 3), ("bmp", 0), ("webp", 4)])
def test_encoded_anew(folder: Path, end: str, off: int) -> None:
    """An even colour survives every format nearly."""
    for number, (_, image, label) in enumerate(convert(folder, encoded=True, encode_type=end, height=3, width=8)):
        assert label == 10 + number
        expected = np.array([100 + number, 50 + number, number]).reshape(3, 1, 1)
        assert image.shape == (3, 3, 8)
        assert np.abs(image.astype(int) - expected).max() <= off


def test_encoded_in_grey(folder: Path) -> None:
    for _, image, _ in convert(folder, encoded=True, grey=True):
        assert image.shape == (1, 6, 4)


def test_sizes_that_differ(folder: Path) -> None:
    Image.new("RGB", (5, 6)).save(folder / "an image 3.png")
    with pytest.raises(DataError, match=r"an image 3\.png: is of 3×6×5, the first image of 3×6×4"):
        convert(folder, check_size=True)
    assert not (folder / "lmdb").exists()
    convert(folder, check_size=True, height=6, width=4)


def test_an_unknown_format_needs_an_encode_type(folder: Path) -> None:
    (folder / "an image 0.png").rename(folder / "an image 0.picture")
    (folder / "list.txt").write_text("an image 0.picture 1\n")
    with pytest.raises(DataError, match="its suffix is not that of a format to encode in; give --encode_type"):
        convert(folder, encoded=True)


def test_no_image_at_all(folder: Path) -> None:
    (folder / "list.txt").write_text("nothing.png 1\n")
    with pytest.raises(FileError, match="its one image could not be read; its path begins with ROOTFOLDER"):
        convert(folder)
    assert not (folder / "lmdb").exists()


def test_a_wrong_list(folder: Path) -> None:
    (folder / "list.txt").write_text("an image 0.png cat\n")
    with pytest.raises(FileError, match=r'the label of "an image 0\.png" is "cat", not an integer'):
        convert(folder)
