"""NIfTI files: axes, scales, and files that are not one volume of numbers."""

from __future__ import annotations

import gzip
import itertools
import struct
import sys
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pytest

from bpt.base.errors import FileError, UserError
from bpt.data.nifti import open_nifti, read_nifti
from tests.support.nifti_files import VOXELS, write

ENDS = {"R": (0, 1), "L": (0, -1), "A": (1, 1), "P": (1, -1), "S": (2, 1), "I": (2, -1)}  # axis of space, direction
CODES = ["".join(code) for pairs in itertools.permutations(("LR", "PA", "IS")) for code in itertools.product(*pairs)]


@pytest.mark.parametrize("code", CODES)
def test_axes_become_canonical(tmp_path: Path, code: str) -> None:
    """The axes of the file run as ``code`` says, "LPI" to the left, to the back and down, on a slightly turned head."""
    assert len(set(CODES)) == 48
    affine = np.eye(4)
    affine[:3, :3] = 0
    for axis, letter in enumerate(code):
        space, direction = ENDS[letter]
        affine[space, axis] = 2 * direction
    tilt = np.eye(4)
    tilt[:2, :2] = [[np.cos(0.3), -np.sin(0.3)], [np.sin(0.3), np.cos(0.3)]]
    stored = VOXELS.transpose([ENDS[letter][0] for letter in code])
    stored = stored[tuple(slice(None, None, ENDS[letter][1]) for letter in code)]
    read = read_nifti(write(tmp_path / "a.nii", stored, tilt @ affine))
    np.testing.assert_array_equal(read, VOXELS, strict=True)
    assert read.flags.c_contiguous and read.flags.writeable


@pytest.mark.parametrize("kind", [nibabel.Nifti1Image, nibabel.Nifti2Image])
@pytest.mark.parametrize("name", ["a.nii", "a.nii.gz", "a b.nii"])
@pytest.mark.parametrize("dtype", ["u1", "<i2", ">i2", "<f4", ">f4", "<f8"])
def test_types_of_voxels(tmp_path: Path, kind: type[Any], name: str, dtype: str) -> None:
    voxels = np.arange(24).reshape(2, 3, 4).astype(dtype)
    header = kind.header_class(endianness=dtype[0] if dtype[0] in "<>" else "<")
    header.set_data_dtype(voxels.dtype)
    nibabel.save(kind(voxels, np.eye(4), header), tmp_path / name)
    np.testing.assert_array_equal(read_nifti(tmp_path / name), voxels.astype(np.float32), strict=True)


def test_the_scale_of_the_file(tmp_path: Path) -> None:
    content = bytearray(write(tmp_path / "a.nii", VOXELS.astype(np.int16)).read_bytes())
    content[112:120] = np.array([0.5, -3], "<f4").tobytes()  # scl_slope, scl_inter
    (tmp_path / "a.nii").write_bytes(content)
    np.testing.assert_array_equal(read_nifti(tmp_path / "a.nii"), VOXELS * 0.5 - 3)


@pytest.mark.parametrize("shape", [(2, 3, 4, 1), (2, 3, 4, 1, 1)])
def test_one_frame_is_a_volume(tmp_path: Path, shape: tuple[int, ...]) -> None:
    np.testing.assert_array_equal(read_nifti(write(tmp_path / "a.nii.gz", VOXELS.reshape(shape))), VOXELS, strict=True)


@pytest.mark.parametrize(
    ("voxels", "message"),
    [
        (np.zeros((2, 3, 4, 2), np.float32), "holds several volumes, 2×3×4×2; only one can be read"),
        (np.zeros((2, 3, 4, 1, 3), np.float32), "holds several volumes, 2×3×4×1×3"),
        (np.zeros((2, 3), np.float32), "is an image of 2×3, not a volume with three axes"),
        (np.zeros((2, 3, 4), np.complex64), "holds voxels of type complex64, not numbers"),
        (np.zeros((2, 3, 4), [("R", "u1"), ("G", "u1"), ("B", "u1")]), "holds voxels of type .*, not numbers"),
    ],
)
def test_not_one_volume_of_numbers(tmp_path: Path, voxels: np.ndarray, message: str) -> None:
    path = write(tmp_path / "a.nii", voxels)
    with pytest.raises(FileError, match=f"a.nii: {message}"):
        open_nifti(path)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.nan, "a.nii: has 1 of 24 voxels that are no finite float32"),
        (-np.inf, "a.nii: has 1 of 24 voxels that are no finite float32"),
        (1e300, "a.nii: has 1 of 24 voxels that are no finite float32"),  # a number, but only as float64
    ],
)
def test_voxels_that_are_not_finite(tmp_path: Path, value: float, message: str) -> None:
    voxels = VOXELS.astype(np.float64)
    voxels[1, 0, 2] = value
    path = write(tmp_path / "a.nii", voxels)
    open_nifti(path)
    with pytest.raises(FileError, match=message):
        read_nifti(path)


@pytest.mark.parametrize("value", [0, np.nan])
def test_an_affine_that_maps_nowhere(tmp_path: Path, value: float) -> None:
    content = bytearray(write(tmp_path / "a.nii").read_bytes())
    content[254:256] = (2).to_bytes(2, "little")  # sform_code: the rows below hold
    content[280:328] = np.full(12, value, "<f4").tobytes()  # srow_x, srow_y, srow_z
    (tmp_path / "a.nii").write_bytes(content)
    with pytest.raises(FileError, match=r"a\.nii: has an affine that does not map voxels"):
        open_nifti(tmp_path / "a.nii")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.nii", b"no volume"),
        ("a.nii", b""),
        ("a.nii", b"x" * 1000),
        ("a.nii.gz", b"x" * 1000),
        ("a.nii.gz", gzip.compress(b"x" * 1000, mtime=0)[:20]),
        ("a.txt", b"no volume"),
    ],
)
def test_not_nifti(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(FileError, match=f"{name}: is not a NIfTI file") as raised:
        open_nifti(tmp_path / name)
    assert "\n" not in str(raised.value)


def test_another_format_that_nibabel_reads(tmp_path: Path) -> None:
    nibabel.save(nibabel.MGHImage(VOXELS, np.eye(4)), tmp_path / "a.mgz")
    with pytest.raises(FileError, match=r"a\.mgz: is a file of nibabel's MGHImage, not NIfTI"):
        open_nifti(tmp_path / "a.mgz")


@pytest.mark.parametrize("name", ["a.nii", "a.nii.gz"])
def test_a_file_that_was_cut_off(tmp_path: Path, name: str) -> None:
    noise = np.random.default_rng(1).normal(size=(8, 8, 8)).astype(np.float32)
    path = write(tmp_path / name, noise)
    path.write_bytes(path.read_bytes()[:-700])
    with pytest.raises(FileError, match=f"{name}: is a damaged NIfTI file"):
        read_nifti(path)


def test_missing_files(tmp_path: Path) -> None:
    write(tmp_path / "brain.nii.gz")
    with pytest.raises(FileError, match=rf'brian.nii.gz: no such file; did you mean "{tmp_path}/brain.nii.gz"\?'):
        open_nifti(tmp_path / "brian.nii.gz")
    with pytest.raises(FileError, match=r'no such file: there is no folder ".*none"'):
        open_nifti(tmp_path / "none/brain.nii.gz")
    with pytest.raises(FileError, match="is not a file"):
        open_nifti(tmp_path)


def test_missing_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.nii")
    monkeypatch.setitem(sys.modules, "nibabel", None)
    with pytest.raises(UserError, match=r"pip install 'bpt\[volume\]'"):
        read_nifti(path)


@pytest.mark.parametrize("suffix", ["nii", "nii.gz"])
def test_voxels_that_are_announced_but_not_there(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / "v.nii"
    nibabel.save(nibabel.Nifti1Image(np.zeros((2, 2, 2), np.float32), np.eye(4)), path)
    content = bytearray(path.read_bytes())
    struct.pack_into("<4h", content, 40, 3, 32_000, 32_000, 32_000)  # axes, and their lengths
    target = tmp_path / f"big.{suffix}"
    target.write_bytes(gzip.compress(bytes(content)) if suffix.endswith("gz") else content)
    with pytest.raises(FileError, match=r"announces voxels of 1\.22e\+05 GiB, but there are"):
        read_nifti(target)
