"""Lists of labelled volumes, and what is made of the volumes that they name."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from bpt.data import volume_source
from bpt.data.volume_source import Entry, VolumeSource, list_volumes
from bpt.errors import BptError, DataError, FileError, UserError
from bpt.proto import bpt_pb2 as pb
from tests.data.test_nifti import VOXELS, write

RAW, Z_SCORE = pb.VolumeDataParameter.RAW, pb.VolumeDataParameter.Z_SCORE
SHAPE = (2, 3, 4)  # of VOXELS


def listed(folder: Path, text: str | bytes) -> str:
    """A list of this text in ``folder``, which has the volumes a.nii and "my scan.nii.gz"."""
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / "a.nii")
    write(folder / "my scan.nii.gz", VOXELS + 1)
    (folder / "list.txt").write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(folder / "list.txt")


def test_lines(tmp_path: Path) -> None:
    """Empty ones do not count, but are counted; the label is the last word; a path may be absolute."""
    path = listed(tmp_path, f"a.nii 0\n\n   \n  my scan.nii.gz \t -7  \r\n{tmp_path}/a.nii +12\na.nii 3")
    assert list_volumes(path) == [
        Entry(tmp_path / "a.nii", 0, f"{path}:1"),
        Entry(tmp_path / "my scan.nii.gz", -7, f"{path}:4"),
        Entry(tmp_path / "a.nii", 12, f"{path}:5"),
        Entry(tmp_path / "a.nii", 3, f"{path}:6"),
    ]


def test_a_list_as_windows_writes_it(tmp_path: Path) -> None:
    path = listed(tmp_path, b"\xef\xbb\xbfa.nii 0\r\nmy scan.nii.gz 1\r\n")
    assert [(entry.path.name, entry.label) for entry in list_volumes(path)] == [("a.nii", 0), ("my scan.nii.gz", 1)]


def test_where_the_volumes_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the list's folder, wherever the command runs, or under the root folder."""
    listed(tmp_path / "scans", "a.nii 5\n")
    (tmp_path / "other").mkdir()
    (tmp_path / "other/list.txt").write_text("a.nii 6\n")
    monkeypatch.chdir(tmp_path)
    assert list_volumes("scans/list.txt") == [Entry(Path("scans/a.nii"), 5, "scans/list.txt:1")]
    assert list_volumes("other/list.txt", "scans") == [Entry(Path("scans/a.nii"), 6, "other/list.txt:1")]
    looked = rf'lists "a\.nii", which does not exist \(looked for {tmp_path}/other/a\.nii\)'
    with pytest.raises(FileError, match=rf"^other/list\.txt:1: {looked}$"):
        list_volumes("other/list.txt")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "list.txt: lists no volumes; write a line for each: its path, then its label"),
        (" \n\n", "list.txt: lists no volumes"),
        ("a.nii 0\n\nmy scan.nii.gz\n", 'list.txt:3: the label of "my" is "scan.nii.gz", not an integer'),
        ("a.nii\n", 'list.txt:1: "a.nii" is a path or a label, not both'),
        ("1\n", 'list.txt:1: "1" is a path or a label, not both'),
        ("a.nii 0\na.nii 1.0\n", 'list.txt:2: the label of "a.nii" is "1.0", not an integer'),
        ("a.nii AD\n", 'list.txt:1: the label of "a.nii" is "AD", not an integer; the label is the last word'),
        ("a.nii 1_0\n", 'list.txt:1: the label of "a.nii" is "1_0", not an integer'),
        ("a.nii ²\n", 'list.txt:1: the label of "a.nii" is "²", not an integer'),
        ("a.nii 16777217\n", 'list.txt:1: the label of "a.nii" is 16777217; float32 has no such integer'),
        ("a.nii -" + "9" * 5000, "float32 has no such integer"),
        ("a.nii 0\nb.nii 1\n", 'list.txt:2: lists "b.nii", which does not exist'),
        (". 0\n", 'list.txt:1: lists ".", which does not exist'),
        ("a\0.nii 0\n", "which does not exist"),
        (b"\xff\xfe\x00", "list.txt: is not a text file that lists volumes"),
    ],
)
def test_lists_that_are_wrong(tmp_path: Path, text: str | bytes, message: str) -> None:
    with pytest.raises(FileError) as raised:
        list_volumes(listed(tmp_path, text))
    assert message in str(raised.value)


def test_the_largest_label(tmp_path: Path) -> None:
    (entry,) = list_volumes(listed(tmp_path, "a.nii 16777216"))
    assert np.float32(entry.label) == entry.label == 2**24


def test_a_missing_list(tmp_path: Path) -> None:
    listed(tmp_path, "")
    with pytest.raises(FileError, match=rf"lists.txt: no such file; did you mean .* \(looked for {tmp_path}/lists.txt"):
        list_volumes(str(tmp_path / "lists.txt"))
    with pytest.raises(FileError, match="is a folder, not a file"):
        list_volumes(str(tmp_path))


def test_volumes_as_wanted(tmp_path: Path) -> None:
    path = listed(tmp_path, "a.nii 0\nmy scan.nii.gz 1\n")
    source = VolumeSource(path, "", (3, 3, 4), RAW)
    assert (len(source), source.path) == (2, path)
    middle = (VOXELS[0] + VOXELS[1]) / 2
    np.testing.assert_array_equal(source.read(1), np.stack([VOXELS[0], middle, VOXELS[1]]) + 1, strict=True)
    expected = (VOXELS - VOXELS.mean()) / VOXELS.std()
    np.testing.assert_allclose(VolumeSource(path, "", SHAPE, Z_SCORE).read(0), expected, rtol=1e-5)


def test_what_stays_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first volumes that are read, as long as there is room."""
    read: list[str] = []
    original = volume_source.read_nifti
    monkeypatch.setattr(volume_source, "read_nifti", lambda path: read.append(path.name) or original(path))
    path = listed(tmp_path, "a.nii 0\nmy scan.nii.gz 1\na.nii 0\n")
    source = VolumeSource(path, "", SHAPE, RAW, cache_bytes=2 * VOXELS.nbytes + 1)
    for _ in range(2):
        volumes = [source.read(index) for index in (1, 0, 2)]
        np.testing.assert_array_equal(volumes, [VOXELS + 1, VOXELS, VOXELS])
    assert read == ["my scan.nii.gz", "a.nii", "a.nii", "a.nii"]
    source.close()


def damaged(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (Path.unlink, "no such file"),
        (damaged, "is not a NIfTI file, or a damaged one"),
        (lambda path: path.write_bytes(b"no volume"), "is not a NIfTI file"),
        (lambda path: write(path, np.full(SHAPE, np.nan, np.float32)), "has 24 of 24 voxels that are no finite"),
        (lambda path: write(path, np.full(SHAPE, 2.5, np.float32)), "all its voxels are 2.5: Z_SCORE has nothing"),
        (lambda path: write(path, np.zeros((*SHAPE, 2), np.float32)), "holds several volumes"),
    ],
)
def test_a_volume_that_cannot_be_used(tmp_path: Path, change: object, message: str) -> None:
    """It is found when it is read; the list's line and the file are named."""
    path = listed(tmp_path, "a.nii 0\n\nmy scan.nii.gz 1\n")
    source = VolumeSource(path, "", SHAPE, Z_SCORE)
    change(tmp_path / "my scan.nii.gz")
    source.read(0)
    with pytest.raises(DataError, match=rf"^{path}:3: {tmp_path}/my scan\.nii\.gz: .*{message}") as raised:
        source.read(1)
    assert "\n" not in str(raised.value)


def test_the_first_file_is_looked_at_before_the_run(tmp_path: Path) -> None:
    path = listed(tmp_path, "list.txt 0\na.nii 1\n")
    with pytest.raises(FileError, match=rf"^{path}:1: {path}: is not a NIfTI file"):
        VolumeSource(path, "", SHAPE, RAW)


def test_equal_voxels_are_found_after_resampling_too(tmp_path: Path) -> None:
    """0.1 is no number of float32: a careless interpolation would make noise of it."""
    path = listed(tmp_path, "a.nii 0\n")
    write(tmp_path / "a.nii", np.full(SHAPE, 0.1, np.float32))
    with pytest.raises(DataError, match=r"all its voxels are 0\.1"):
        VolumeSource(path, "", (7, 5, 6), Z_SCORE).read(0)


def test_missing_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = listed(tmp_path, "a.nii 0\n")
    monkeypatch.setitem(sys.modules, "nibabel", None)
    with pytest.raises(UserError, match=r"pip install 'bpt\[volume\]'") as raised:
        VolumeSource(path, "", SHAPE, RAW)
    assert isinstance(raised.value, BptError) and raised.value.exit_status == 2
