"""Hdf5Writer: rows in their order, in a file that is complete between two calls."""

from __future__ import annotations

import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

from bpt.base.errors import FileError, UserError, WriteError
from bpt.data.hdf5_file import Hdf5Writer, listed


def content(path: Path) -> dict[str, np.ndarray]:
    with h5py.File(path) as file:
        return {name: file[name][()] for name in file}


def rows(start: int, count: int) -> dict[str, np.ndarray]:
    numbers = np.arange(start, start + count, dtype=np.float32)
    return {"data": np.stack([numbers, -numbers], 1), "label": numbers.astype(np.float64)}


def test_appends(tmp_path: Path) -> None:
    path = tmp_path / "out.h5"
    writer = Hdf5Writer(str(path))
    assert not path.exists()
    for start, count in ((0, 3), (3, 5), (8, 0), (8, 1)):
        writer.append(rows(start, count))
        for name, wanted in rows(0, start + count).items():
            np.testing.assert_array_equal(content(path)[name], wanted, strict=True)
    assert [file.name for file in tmp_path.iterdir()] == ["out.h5"]


def test_begins_without_rows(tmp_path: Path) -> None:
    writer = Hdf5Writer(str(tmp_path / "out.h5"))
    writer.append(rows(0, 0))
    writer.append(rows(0, 2))
    np.testing.assert_array_equal(content(tmp_path / "out.h5")["data"], rows(0, 2)["data"], strict=True)


def test_a_new_file_in_place_of_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "out.h5"
    path.write_text("old")
    writer = Hdf5Writer(str(path))
    assert path.read_text() == "old"
    writer.append(rows(0, 1))
    assert content(path)["label"].tolist() == [0]


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(WriteError, match=r'none/out\.h5: could not be written: there is no folder ".*none"'):
        Hdf5Writer(str(tmp_path / "none" / "out.h5"))
    with pytest.raises(WriteError, match="could not be written: is a folder"):
        Hdf5Writer(str(tmp_path))
    writer = Hdf5Writer(str(tmp_path / "out.h5"))
    (tmp_path / "out.h5").mkdir()
    with pytest.raises(WriteError, match=r"out\.h5: could not be written"):
        writer.append(rows(0, 1))
    assert [file.name for file in tmp_path.iterdir()] == ["out.h5"]


def test_a_file_that_has_gone(tmp_path: Path) -> None:
    writer = Hdf5Writer(str(tmp_path / "out.h5"))
    writer.append(rows(0, 1))
    (tmp_path / "out.h5").unlink()
    with pytest.raises(WriteError, match=r"out\.h5: could not be written"):
        writer.append(rows(1, 1))


def test_missing_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(UserError, match=r"pip install 'bpt\[hdf5\]'"):
        Hdf5Writer(str(tmp_path / "out.h5"))


def test_several_names_on_a_line(tmp_path: Path) -> None:
    """Caffe reads a list word by word; a file whose name has spaces is one file all the same."""
    for name in ("a.h5", "b.h5", "c d.h5"):
        (tmp_path / name).touch()
    listing = tmp_path / "list.txt"
    listing.write_text(f"a.h5 b.h5\n\n{tmp_path}/c d.h5\n  b.h5\ta.h5 a.h5  \n")
    assert [file.name for file in listed(str(listing))] == ["a.h5", "b.h5", "c d.h5", "b.h5", "a.h5", "a.h5"]
    listing.write_text("a.h5 e.h5\n")
    with pytest.raises(FileError, match=r'lists "e.h5", which does not exist'):
        listed(str(listing))
    listing.write_text("e f.h5\n")
    with pytest.raises(FileError, match=r'lists "e f.h5", which does not exist'):
        listed(str(listing))
