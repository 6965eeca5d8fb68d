"""ImageSource: lists, and what may be wrong with them and with their files."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bpt.base.errors import DataError, FileError, UserError
from bpt.data.image_source import ImageSource


def write(path: Path, pixels: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


def listing(folder: Path, text: str) -> str:
    (folder / "list.txt").write_text(text)
    return str(folder / "list.txt")


def test_paths_with_spaces_and_empty_lines(tmp_path: Path) -> None:
    for number, name in enumerate(("a.png", "a cat/b c.png")):
        write(tmp_path / name, np.full((2, 3), 10 * number, np.uint8))
    text = f"{tmp_path}/a.png 4\n\n  \n{tmp_path}/a cat/b c.png   -2 \r\n"
    source = ImageSource(listing(tmp_path, text), channels=1)
    assert len(source) == 2
    samples = [source.read(0), source.begin(1)()]
    assert [(sample.key, sample.label) for sample in samples] == [
        (f"{tmp_path}/a.png", 4),
        (f"{tmp_path}/a cat/b c.png", -2),
    ]
    for number, sample in enumerate(samples):
        np.testing.assert_array_equal(sample.image, np.full((1, 2, 3), 10 * number, np.uint8), strict=True)


def test_root_folder_is_put_before_as_it_is(tmp_path: Path) -> None:
    write(tmp_path / "set_1.png", np.zeros((1, 1), np.uint8))
    source = ImageSource(listing(tmp_path, "1.png 0\n"), root_folder=f"{tmp_path}/set_")
    assert source.read(0).image.shape == (3, 1, 1)


def test_size_and_channels(tmp_path: Path) -> None:
    write(tmp_path / "a.png", np.full((4, 4, 3), (1, 2, 3), np.uint8))
    path = listing(tmp_path, f"{tmp_path}/a.png 0")
    image = ImageSource(path, size=(2, 5)).read(0).image
    np.testing.assert_array_equal(image, np.broadcast_to(np.array([3, 2, 1], np.uint8)[:, None, None], (3, 2, 5)))
    assert ImageSource(path, size=(2, 5), channels=1).read(0).image.shape == (1, 2, 5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "list.txt: lists no images; write a line for each"),
        ("a.png 0\nb.png\n", 'list.txt:2: "b.png" is a path or a label, not both'),
        ("a.png 0\n\nb.png cat\n", 'list.txt:3: the label of "b.png" is "cat", not an integer; the label is the last'),
        ("a.png 0.5\n", 'list.txt:1: the label of "a.png" is "0.5", not an integer'),
        ("a.png 16777217\n", 'list.txt:1: the label of "a.png" is 16777217; float32 has no such integer'),
    ],
)
def test_lists_that_are_wrong(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(FileError, match=message):
        ImageSource(listing(tmp_path, text))


def test_no_list(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"list.txt: no such file \(looked for /"):
        ImageSource(str(tmp_path / "list.txt"))
    (tmp_path / "list.txt").write_bytes(b"\xff\xd8\xff\xe0")
    with pytest.raises(FileError, match="is a JPEG image, not a text file that lists images"):
        ImageSource(str(tmp_path / "list.txt"))


def test_images_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "in/a.png", np.zeros((1, 1), np.uint8))
    (tmp_path / "in/text.png").write_text("hello")
    write(tmp_path / "in/cut.png", np.random.default_rng(0).integers(0, 256, (64, 64), dtype=np.uint8))
    (tmp_path / "in/cut.png").write_bytes((tmp_path / "in/cut.png").read_bytes()[:2000])
    source = ImageSource(listing(tmp_path, "in/a.png 0\n\nin/b.png 1\nin/text.png 2\nin/cut.png 3\nin 4"))
    assert source.read(0).label == 0
    for index, message in (
        (1, rf"list.txt:3: in/b.png: no such file.*\(looked for {tmp_path}/in/b.png\)"),
        (2, "list.txt:4: in/text.png: 5 bytes that are no image file"),
        (3, "list.txt:5: in/cut.png: a damaged image file"),
        (4, "list.txt:6: in: is a folder, not a file"),
    ):
        with pytest.raises(DataError, match=message):
            source.read(index)


def test_missing_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(UserError, match=r"pip install 'bpt\[image\]'"):
        ImageSource(listing(tmp_path, "a.png 0"))
