"""WindowSource: R-CNN's files of windows, and what may be wrong with them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from bpt.base.errors import DataError, FileError, UserError
from bpt.data.window_source import WindowSource

TEXT = """# 0
a b.png
3
4
5
3
7 0.5 0 0 4 3
2 0.3 1 1 2 2
0 0.1 0 0 1 1

# 1
c.png
3
6
6
0
# 2
d.png
3
2
2
2
1 1 0 0 1 1
9 0 0 0 0 1
"""


def source(folder: Path, text: str = TEXT, **settings: Any) -> WindowSource:
    (folder / "windows.txt").write_text(text)
    thresholds: dict[str, Any] = {"fg_threshold": 0.5, "bg_threshold": 0.3} | settings
    return WindowSource(str(folder / "windows.txt"), root_folder=f"{folder}/", **thresholds)


def test_foreground_and_background(tmp_path: Path) -> None:
    """Numbers of the image, class, x1, y1, x2, y2; background has class 0, and what is between is left out."""
    one = source(tmp_path)
    assert one.foreground.tolist() == [[0, 7, 0, 0, 4, 3], [2, 1, 0, 0, 1, 1]]
    assert one.background.tolist() == [[0, 0, 0, 0, 1, 1], [2, 0, 0, 0, 0, 1]]
    assert len(source(tmp_path, bg_threshold=0.31).background) == 3
    # 0.3 is written; compared in float32 like Caffe's, so that a threshold of 0.3 has it
    assert len(source(tmp_path, fg_threshold=0.3).foreground) == 3


def test_images(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (4, 5, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a b.png")
    Image.fromarray(pixels[:, :, 0]).save(tmp_path / "d.png")
    one, cached = source(tmp_path), source(tmp_path, cache=True)
    for each in (one, cached):
        np.testing.assert_array_equal(each.read(0), pixels[:, :, ::-1].transpose(2, 0, 1))
        np.testing.assert_array_equal(each.read(2), np.stack([pixels[:, :, 0]] * 3))
    (tmp_path / "d.png").unlink()
    assert cached.read(2).shape == (3, 4, 5)
    with pytest.raises(DataError, match=rf"windows.txt:18: {tmp_path}/d.png: no such file"):
        one.read(2)
    beside = tmp_path / "windows.txt"
    unslashed = WindowSource(str(beside), root_folder=str(tmp_path), fg_threshold=0.5, bg_threshold=0.3)
    with pytest.raises(DataError) as caught:
        unslashed.read(0)
    assert str(caught.value) == (
        f"{beside}:2: {tmp_path}a b.png: no such file (looked for {tmp_path}a b.png); paths begin with the root folder "
        f'as it is, "{tmp_path}", so write "{tmp_path}/"'
    )
    (tmp_path / "c.png").write_text("no image")
    with pytest.raises(DataError, match=r"windows.txt:12: .*/c.png: 8 bytes that are no image file"):
        one.read(1)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (TEXT, "", r'windows.txt: lists no images; the first one begins with "# 0"'),
        ("# 1", "1", r'windows.txt:11: "1" stands where an image begins: "# 1"'),
        ("# 1", "# 2", "windows.txt:11: image 2 comes where 1 is next"),
        ("# 1", "# one", 'windows.txt:11: "one" stands where an image has its image index, a number'),
        ("c.png\n3", "c.png\n1", "windows.txt:13: an image of 1 channel; all are read as color, write 3"),
        ("6\n6\n", "6\n", 'windows.txt:16: "# 2" stands where an image has its number of windows'),
        ("2\n2\n2\n1 1", "2\n2\n3\n1 1", "windows.txt: ends before the last image's windows: 2 of 3 are there"),
        ("1 1 0 0 1 1\n9 0 0 0 0 1\n", "", "ends before the last image's windows: 0 of 2"),
        (TEXT[-40:], "# 2\nd.png\n", "ends before this image's channels"),
        ("2 0.3 1 1 2 2", "2 0.3 1 1 2", 'windows.txt:8: "2 0.3 1 1 2" is not a window: class overlap x1 y1 x2 y2'),
        ("2 0.3 1 1 2 2", "2 0.3 1 1 2 x", 'windows.txt:8: "2 0.3 1 1 2 x" is not a window'),
        ("2 0.3 1 1 2 2", "2 0.3 1 1 2 2.5", 'windows.txt:8: "2 0.3 1 1 2 2.5" is not a window'),
        ("2 0.3 1 1 2 2", "2 nan 1 1 2 2", 'windows.txt:8: "2 nan 1 1 2 2" is not a window'),
        ("2 0.3 1 1 2 2", "2 0.3 1 1 2 1e12", 'windows.txt:8: "2 0.3 1 1 2 1e12" is not a window'),
        ("7 0.5", "0 0.5", r"windows.txt:2: a foreground window \(overlap of at least 0.5\) has the class 0"),
    ],
)
def test_files_that_are_wrong(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(FileError, match=message):
        source(tmp_path, TEXT.replace(old, new))


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"nope: no such file.* \(looked for"):
        WindowSource(str(tmp_path / "nope"), fg_threshold=0.5, bg_threshold=0.5)
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FileError, match="binary: is not a text file of windows"):
        WindowSource(str(tmp_path / "binary"), fg_threshold=0.5, bg_threshold=0.5)


def test_missing_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(UserError, match=r"pip install 'bpt\[image\]'"):
        source(tmp_path)
