"""Scans and images that are explained, and the figures of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pytest
import torch
from nibabel.orientations import axcodes2ornt, ornt_transform
from PIL import Image
from torch import from_numpy
from torch.nn import functional

from bpt.apps.explain import subjects
from bpt.apps.explain.grad_cam import spread
from bpt.apps.explain.model_input import Preprocessing
from bpt.apps.explain.subjects import ExplainedPicture, PlanePanel, Scan, draw
from bpt.base.errors import FileError, UserError, WriteError
from bpt.config.proto import bpt_pb2 as pb
from bpt.data.volume_source import VolumeSource
from tests.support.marks import slow

RAW = Preprocessing(pb.VolumeDataParameter.RAW)
AFFINE = np.array([[2, 0, 0, -6], [0, 3, 0, -9], [0, 0, 4, -8], [0, 0, 0, 1.0]])
VOXELS = np.random.default_rng(3).integers(-500, 900, (5, 7, 4)).astype(np.int16)
AXES = ("RAS", "LPS", "PIR", "SAL")


def write_scan(path: Path, axes: str, kind: type[Any] = nibabel.Nifti1Image) -> Path:
    """VOXELS, which run to the right, the front and the top, in a file with other axes."""
    image = nibabel.Nifti1Image(VOXELS, AFFINE)
    turned = image.as_reoriented(ornt_transform(axcodes2ornt("RAS"), axcodes2ornt(axes)))
    nibabel.save(kind(np.asarray(turned.dataobj), turned.affine, turned.header), path)
    return path


@pytest.mark.parametrize("axes", AXES)
def test_the_net_sees_what_volume_data_gives_it(tmp_path: Path, axes: str) -> None:
    path = write_scan(tmp_path / "scan.nii.gz", axes)
    (tmp_path / "list.txt").write_text("scan.nii.gz 1\n")
    for kind in (pb.VolumeDataParameter.RAW, pb.VolumeDataParameter.Z_SCORE):
        theirs = VolumeSource(str(tmp_path / "list.txt"), "", (6, 3, 4), kind).read(0)
        scan = Scan(str(path), (1, 6, 3, 4), Preprocessing(kind))
        np.testing.assert_array_equal(scan.sample, theirs[None])


@pytest.mark.parametrize("axes", AXES)
@pytest.mark.parametrize("kind", [nibabel.Nifti1Image, slow(nibabel.Nifti2Image)])
def test_the_map_lies_on_the_scan(tmp_path: Path, axes: str, kind: type[Any]) -> None:
    path = write_scan(tmp_path / "scan.nii", axes, kind)
    scan = Scan(str(path), (1, 6, 6, 6), RAW)
    heat = np.random.default_rng(4).random(VOXELS.shape).astype(np.float32) / np.float32(2)
    heat[3, 1, 2] = 1
    scan.write(str(tmp_path / "map"), heat, (3, 1, 2), "title")
    own, written = kind.from_filename(path), kind.from_filename(tmp_path / "map.nii.gz")
    assert written.shape == own.shape
    assert type(written) is kind
    assert written.get_data_dtype() == np.float32
    np.testing.assert_array_equal(written.affine, own.affine)
    assert written.header["qform_code"] == own.header["qform_code"]
    np.testing.assert_array_equal(nibabel.as_closest_canonical(written).get_fdata(dtype=np.float32), heat)
    # The place, too, is told in the file's own axes, and in mm of its space: 2·3 - 6, 3·1 - 9, 4·2 - 8.
    voxel = np.argwhere(written.get_fdata() == 1)[0].tolist()
    assert scan.where((3, 1, 2)) == f"voxel ({', '.join(map(str, voxel))}), at (0.0, -6.0, 0.0) mm"
    np.testing.assert_allclose(own.affine @ [*voxel, 1], [0, -6, 0, 1], atol=1e-6)
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")


def test_positions_undo_the_resampling(tmp_path: Path) -> None:
    """What the net sees of a ramp, looked at from the scan's voxels, is the ramp."""
    ramp = np.arange(5.0)[:, None, None] + 10 * np.arange(7.0)[:, None] + 100 * np.arange(4.0)
    nibabel.save(nibabel.Nifti1Image(ramp.astype(np.float32), AFFINE), tmp_path / "ramp.nii")
    scan = Scan(str(tmp_path / "ramp.nii"), (1, 9, 3, 6), RAW)
    found = spread(torch.from_numpy(scan.sample[0]), (9, 3, 6), scan.positions)
    np.testing.assert_allclose(found, ramp / ramp.max(), atol=1e-6)


def test_axes_of_one_voxel(tmp_path: Path) -> None:
    nibabel.save(nibabel.Nifti1Image(VOXELS[:, :, :1], AFFINE), tmp_path / "flat.nii")
    scan = Scan(str(tmp_path / "flat.nii"), (1, 1, 7, 3), RAW)
    assert [at.tolist() for at in scan.positions] == [[0.0] * 5, list(range(7)), [1.0]]


def test_planes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each plane is cut at the maximum, and its edges are half a voxel beyond the outermost centres."""
    drawn: list[PlanePanel] = []

    def draw(path: object, title: str, panels: Sequence[PlanePanel]) -> None:
        drawn.extend(panels)

    monkeypatch.setattr(subjects, "draw", draw)
    path = write_scan(tmp_path / "scan.nii", "LPS")
    heat = np.random.default_rng(5).random(VOXELS.shape).astype(np.float32)
    Scan(str(path), (1, 4, 4, 4), RAW).write(str(tmp_path / "map"), heat, (3, 1, 2), "")
    assert [panel.title for panel in drawn] == ["sagittal, 0.0 mm", "coronal, -6.0 mm", "axial, 0.0 mm"]
    x, y, z = (-7.0, 3.0), (-10.5, 10.5), (-10.0, 6.0)
    assert [panel.extent for panel in drawn] == [(*y, *z), (*x, *z), (*x, *y)]
    assert [panel.mark for panel in drawn] == [(-6.0, 0.0), (0.0, 0.0), (0.0, -6.0)]
    for volume, name in ((VOXELS, "back"), (heat, "heat")):
        for panel, plane in zip(drawn, (volume[3], volume[:, 1], volume[:, :, 2]), strict=True):
            np.testing.assert_array_equal(getattr(panel, name), plane.T)
    assert drawn[0].labels == ("posterior → anterior (mm)", "inferior → superior (mm)")


def test_a_net_of_many_channels(tmp_path: Path) -> None:
    path = write_scan(tmp_path / "scan.nii", "RAS")
    with pytest.raises(UserError, match="the net's input has 3 channels, a scan one"):
        Scan(str(path), (3, 4, 4, 4), RAW)


PIXELS = np.random.default_rng(6).integers(0, 256, (6, 4, 3), np.uint8)  # red, green, blue


@pytest.fixture
def image(tmp_path: Path) -> str:
    Image.fromarray(PIXELS).save(tmp_path / "image.png")
    return str(tmp_path / "image.png")


def test_colours_in_caffes_order(image: str) -> None:
    picture = ExplainedPicture(image, (3, 6, 4), RAW)
    np.testing.assert_array_equal(picture.sample, PIXELS.transpose(2, 0, 1)[::-1].astype(np.float32))
    assert picture.description == f"{image}: 6×4 pixels; the net sees 6×4, intensity RAW ()"
    assert picture.where((2, 3)) == "row 2, column 3"


def test_enlarged(image: str) -> None:
    """Twice as large: a pixel's centre lies between those of two new ones."""
    picture = ExplainedPicture(image, (3, 12, 8), RAW)
    bgr = from_numpy(PIXELS.transpose(2, 0, 1)[::-1].astype(np.float32))
    wanted = functional.interpolate(bgr[None], (12, 8), mode="bilinear", align_corners=False)[0]
    np.testing.assert_allclose(picture.sample, wanted.numpy(), atol=1)  # whole numbers, as in training
    assert [at.tolist() for at in picture.positions] == [[0.5, 2.5, 4.5, 6.5, 8.5, 10.5], [0.5, 2.5, 4.5, 6.5]]


def test_shrunk_without_aliasing(tmp_path: Path) -> None:
    """Stripes of a pixel become grey."""
    stripes = np.tile(np.array([[0, 200]], np.uint8), (32, 16))
    Image.fromarray(stripes).save(tmp_path / "stripes.png")
    picture = ExplainedPicture(str(tmp_path / "stripes.png"), (1, 4, 4), RAW)
    np.testing.assert_allclose(picture.sample, np.full((1, 4, 4), 100), atol=15)


def test_files(image: str, tmp_path: Path) -> None:
    heat = np.linspace(0, 1, 24, dtype=np.float32).reshape(6, 4)
    for channels in (1, 3):
        picture = ExplainedPicture(image, (channels, 8, 8), RAW)
        picture.write(str(tmp_path / "map"), heat, (5, 3), "title")
        assert picture.outputs(str(tmp_path / "map")) == (tmp_path / "map.png",)
        with Image.open(tmp_path / "map.png") as written:
            assert min(written.size) > 500


def test_what_is_no_image(image: str, tmp_path: Path) -> None:
    (tmp_path / "text.png").write_text("text")
    with pytest.raises(FileError, match=re.escape("text.png: 4 bytes that are no image file")):
        ExplainedPicture(str(tmp_path / "text.png"), (1, 4, 4), RAW)
    with pytest.raises(FileError, match="no such file"):
        ExplainedPicture(str(tmp_path / "none.png"), (1, 4, 4), RAW)
    with pytest.raises(UserError, match=re.escape("has 2 channels; an image has 1 (grey) or 3 (colour)")):
        ExplainedPicture(image, (2, 4, 4), RAW)


def panel(back: np.ndarray, heat: np.ndarray) -> PlanePanel:
    return PlanePanel("plane", back, heat, (0.0, 4.0, 0.0, 4.0), ("to the right", "up"), (1.0, 3.0), (0.0, 1.0))


def pixels(path: Path) -> np.ndarray:
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB")).astype(int)


def coloured(path: Path) -> int:
    """Pixels of the planes, so without the scale beside them, that are strongly coloured."""
    image = pixels(path)
    image = image[:, : int(image.shape[1] * 0.8)]
    return int(((image.max(2) - image.min(2)) > 100).sum())


def test_without_heat_the_plane_is_grey(tmp_path: Path) -> None:
    back = np.full((4, 4), 0.5)
    draw(tmp_path / "cold.png", r"no $\formula$", [panel(back, np.zeros((4, 4), np.float32))])
    heat = np.zeros((4, 4), np.float32)
    heat[3, 1] = 0.8
    draw(tmp_path / "warm.png", r"no $\formula$", [panel(back, heat)])
    cold, warm = pixels(tmp_path / "cold.png"), pixels(tmp_path / "warm.png")
    assert coloured(tmp_path / "cold.png") < 1000  # the lines through the maximum
    assert coloured(tmp_path / "warm.png") > 10_000
    # Row 3 is the uppermost of an origin below, column 1 the second from the left.
    rows, columns, _ = np.nonzero(abs(cold - warm) > 50)
    height, width, _ = cold.shape
    assert rows.max() < 0.4 * height
    assert columns.max() < 0.55 * width
    assert columns.min() > 0.3 * width


def test_three_planes_are_wide(tmp_path: Path) -> None:
    colours = np.zeros((4, 4, 3))
    plane = panel(colours, np.eye(4, dtype=np.float32))
    draw(tmp_path / "three.png", "", [plane] * 3)
    height, width, _ = pixels(tmp_path / "three.png").shape
    assert width > 2 * height


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(WriteError, match="there is no folder"):
        draw(tmp_path / "no" / "x.png", "", [panel(np.zeros((4, 4)), np.zeros((4, 4), np.float32))])
