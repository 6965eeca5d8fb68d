"""Digests of data sets and files."""

from __future__ import annotations

from pathlib import Path

import h5py
import lmdb
import nibabel
import numpy as np
import pytest
from PIL import Image

from bpt.apps.doctor.content import (
    file_content,
    hdf5_content,
    image_content,
    lmdb_content,
    mean_content,
    volume_content,
)
from bpt.base.errors import FileError, UserError
from bpt.data.transform import write_mean
from tests.support.lmdbs import write_records
from tests.support.paths import GOLDEN


def records(number: int, **changes: bytes) -> dict[bytes, bytes]:
    """Records as convert_imageset names them; ``changes`` by index, as "_5"."""
    made = {f"{index:08d}".encode(): b"value %d" % index for index in range(number)}
    return made | {f"{int(index[1:]):08d}".encode(): value for index, value in changes.items()}


def test_an_lmdb(tmp_path: Path) -> None:
    here = lmdb_content(write_records(tmp_path / "a", records(500)))
    assert here.amount == "500 records"
    assert lmdb_content(write_records(tmp_path / "b", records(500))) == here
    assert lmdb_content(write_records(tmp_path / "c", records(501))) != here


@pytest.mark.parametrize("index", ["_0", "_3", "_496", "_499"])
def test_records_at_the_ends_of_an_lmdb(tmp_path: Path, index: str) -> None:
    here = lmdb_content(write_records(tmp_path / "a", records(500)))
    assert lmdb_content(write_records(tmp_path / "b", records(500, **{index: b"other"}))) != here


def test_records_between(tmp_path: Path) -> None:
    """Another order of the same records, as convert_imageset --shuffle makes it, is seen."""
    mixed = np.random.default_rng(1).permutation(500)
    shuffled = {f"{at:08d}".encode(): b"value %d" % index for at, index in enumerate(mixed)}
    for at in (0, 1, 2, 3, 496, 497, 498, 499):  # the ends as they were
        shuffled[f"{at:08d}".encode()] = b"value %d" % at
    here = lmdb_content(write_records(tmp_path / "a", records(500)))
    there = lmdb_content(write_records(tmp_path / "b", shuffled))
    assert (there.amount, there.digest == here.digest) == ("500 records", False)


@pytest.mark.parametrize("number", [1, 2, 5])
def test_a_small_lmdb(tmp_path: Path, number: int) -> None:
    amount = lmdb_content(write_records(tmp_path / "a", records(number))).amount
    assert amount == {1: "1 record", 2: "2 records", 5: "5 records"}[number]


def test_a_missing_lmdb(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="no such folder"):
        lmdb_content(str(tmp_path / "a"))
    (tmp_path / "b").mkdir()
    with pytest.raises(FileError, match=r"holds no data\.mdb"):
        lmdb_content(str(tmp_path / "b"))


def test_a_damaged_lmdb(tmp_path: Path) -> None:
    """Its pages are zeros behind the first two, which describe it."""
    path = write_records(tmp_path / "a", records(500))
    file = tmp_path / "a/data.mdb"
    content = file.read_bytes()
    page = lmdb.open(path, lock=False).stat()["psize"]
    file.write_bytes(content[: 2 * page] + bytes(len(content) - 2 * page))
    with pytest.raises(FileError, match="is a damaged LMDB"):
        lmdb_content(path)


def test_other_recorded_sets_differ() -> None:
    folders = [GOLDEN / "lmdb" / name for name in ("digits_train_lmdb", "digits_test_lmdb", "color_lmdb", "float_lmdb")]
    assert len({lmdb_content(str(folder)).digest for folder in folders}) == 4


def write_hdf5(folder: Path, *files: np.ndarray) -> str:
    folder.mkdir()
    for number, rows in enumerate(files):
        with h5py.File(folder / f"{number}.h5", "w") as file:
            file["data"] = rows
            file["label"] = np.zeros(len(rows), np.float32)
    (folder / "list.txt").write_text("".join(f"{number}.h5\n" for number in range(len(files))))
    return str(folder / "list.txt")


def test_hdf5(tmp_path: Path) -> None:
    rows = np.arange(12, dtype=np.float32).reshape(6, 2)
    tops = ("data", "label")
    here = hdf5_content(write_hdf5(tmp_path / "a", rows, rows[:3]), tops)
    assert here.amount == "9 rows in 2 files"
    assert hdf5_content(write_hdf5(tmp_path / "b", rows, rows[:3]), tops) == here
    other = rows.copy()
    other[5, 1] = 0
    assert hdf5_content(write_hdf5(tmp_path / "c", other, rows[:3]), tops) != here
    assert hdf5_content(write_hdf5(tmp_path / "d", rows[:3], rows), tops) != here
    with pytest.raises(FileError, match='has no dataset "labels"'):
        hdf5_content(str(tmp_path / "a/list.txt"), ("data", "labels"))


def write_volumes(folder: Path, *volumes: np.ndarray, labels: str = "010") -> tuple[str, str]:
    """A list of NIfTI files, which stand in a folder of their own, and this folder."""
    files = folder / "files"
    files.mkdir(parents=True)
    for number, volume in enumerate(volumes):
        nibabel.save(nibabel.Nifti1Image(volume, np.eye(4)), files / f"{number}.nii.gz")
    lines = [f"{number}.nii.gz {label}\n" for number, label in zip(range(len(volumes)), labels, strict=True)]
    (folder / "list.txt").write_text("".join(lines))
    return str(folder / "list.txt"), str(files)


def test_volumes(tmp_path: Path) -> None:
    volumes = np.random.default_rng(1).normal(size=(3, 4, 5, 6)).astype(np.float32)
    here = volume_content(*write_volumes(tmp_path / "a", *volumes))
    assert here.amount == "3 volumes with 2 labels"
    assert volume_content(*write_volumes(tmp_path / "b", *volumes)) == here
    assert volume_content(*write_volumes(tmp_path / "c", *volumes, labels="001")) != here
    volumes[2, 3, 4, 5] = 0
    assert volume_content(*write_volumes(tmp_path / "d", *volumes)) != here
    (tmp_path / "d/files/1.nii.gz").write_bytes(b"no volume")
    with pytest.raises(FileError, match=r"d/list\.txt:2: .*1\.nii\.gz: is not a NIfTI file"):
        volume_content(str(tmp_path / "d/list.txt"), str(tmp_path / "d/files"))


def test_images(tmp_path: Path) -> None:
    def write(folder: str, *values: int, labels: str = "010") -> tuple[str, str]:
        (tmp_path / folder).mkdir()
        for index, value in enumerate(values):
            Image.fromarray(np.full((3, 4), value, np.uint8)).save(tmp_path / folder / f"{index}.png")
        lines = "".join(f"{index}.png {label}\n" for index, label in enumerate(labels))
        (tmp_path / folder / "list.txt").write_text(lines)
        return str(tmp_path / folder / "list.txt"), f"{tmp_path}/{folder}/"

    here = image_content(*write("a", 1, 2, 3))
    assert here.amount == "3 images"
    assert image_content(*write("b", 1, 2, 3)) == here
    assert image_content(*write("c", 1, 2, 3, labels="001")) != here
    assert image_content(*write("d", 1, 9, 3)) != here
    (tmp_path / "d/1.png").write_bytes(b"no image")
    with pytest.raises(UserError, match=r"d/list\.txt:2: .*1\.png: .*no image file"):
        image_content(str(tmp_path / "d/list.txt"), f"{tmp_path}/d/")


def test_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    large = bytearray(40 * 2**20)
    Path("a").write_bytes(large)
    large[-1] = 1
    Path("b").write_bytes(large)
    Path("c").write_bytes(b"")
    first, second = file_content("a"), file_content("b")
    assert first.amount == second.amount == "41943040 bytes"
    assert first != second
    assert file_content("c").amount == "0 bytes"
    with pytest.raises(FileError, match=f"d: no such file \\(looked for {tmp_path}/d\\)"):
        file_content("d")


def test_a_mean(tmp_path: Path) -> None:
    path = str(tmp_path / "mean")
    write_mean(path, np.zeros((3, 4, 5), np.float32))
    first = mean_content(path)
    assert first.amount == "an image of 3×4×5"
    write_mean(path, np.ones((3, 4, 5), np.float32))
    assert mean_content(path) != first
