"""A scan's way into the net, and the map's way back onto the scan, in whatever axes the file has."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pytest
import torch
from nibabel.orientations import axcodes2ornt, ornt_transform

from bpt.data.volume_source import VolumeSource
from bpt.errors import UserError
from bpt.explain import scan as explain_scan
from bpt.explain.explain_figure import Panel
from bpt.explain.grad_cam import spread
from bpt.explain.model_input import Rule
from bpt.explain.scan import Scan
from bpt.proto import bpt_pb2 as pb

RAW = Rule(pb.VolumeDataParameter.RAW)
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
        scan = Scan(str(path), (1, 6, 3, 4), Rule(kind))
        np.testing.assert_array_equal(scan.sample, theirs[None])


@pytest.mark.parametrize("axes", AXES)
@pytest.mark.parametrize("kind", [nibabel.Nifti1Image, nibabel.Nifti2Image])
def test_the_map_lies_on_the_scan(tmp_path: Path, axes: str, kind: type[Any]) -> None:
    path = write_scan(tmp_path / "scan.nii", axes, kind)
    scan = Scan(str(path), (1, 6, 6, 6), RAW)
    heat = np.random.default_rng(4).random(VOXELS.shape).astype(np.float32) / 2
    heat[3, 1, 2] = 1
    scan.write(str(tmp_path / "map"), heat, (3, 1, 2), "title")
    own, written = nibabel.load(path), nibabel.load(tmp_path / "map.nii.gz")
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
    drawn: list[Panel] = []

    def draw(path: object, title: str, panels: Sequence[Panel]) -> None:
        drawn.extend(panels)

    monkeypatch.setattr(explain_scan, "draw", draw)
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
