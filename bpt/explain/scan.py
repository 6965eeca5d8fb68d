"""A scan in a NIfTI file, for nets with three spatial axes."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bpt.data.nifti import import_nibabel, open_nifti, read_nifti
from bpt.data.volume_transform import resample
from bpt.errors import UserError
from bpt.explain.explain_figure import Panel, draw
from bpt.explain.model_input import Rule, Sample, Subject
from bpt.graph.spec import Shape
from bpt.proto.atomic import atomic_file

CANONICAL = np.array([[0, 1], [1, 1], [2, 1]])  # axis and direction of RAS+, as nibabel writes orientations
SIDES = ("left → right", "posterior → anterior", "inferior → superior")
# Planes across axis 0, 1 and 2, each with the axes that run to the right and up in it.
PLANES = (("sagittal", 1, 2), ("coronal", 0, 2), ("axial", 0, 1))


class Scan(Subject):
    """The NIfTI file at ``path``, read and resampled as VolumeData does.

    ``positions``, and arrays handed to ``write``, are on the scan's grid in canonical axes (RAS+); the file that is
    written has the axes of the scan's file.

    Args:
        path: the file.
        shape: the net's input, (channels, D, H, W).
        rule: what is done to intensities.

    Raises:
        UserError: the net takes more than one channel; nibabel is missing.
        FileError: the file cannot be used.
    """

    def __init__(self, path: str, shape: Shape, rule: Rule) -> None:
        channels, *box = shape
        if channels != 1:
            raise UserError(f"the net's input has {channels} channels, a scan one")
        self._image: Any = open_nifti(path)
        self._orientations = import_nibabel().orientations
        self._orientation = self._orientations.io_orientation(self._image.affine)
        self._voxels = read_nifti(path)
        self._path = path
        self.sample = rule(resample(self._voxels, tuple(box))[np.newaxis], path)
        # The inverse of what resample does: the centres of the first and the last voxel stay where they are.
        self.positions = tuple(
            np.arange(m) * (n - 1) / (m - 1) if m > 1 else np.array([(n - 1) / 2])
            for m, n in zip(self._voxels.shape, box, strict=True)
        )
        own, seen = self._image.shape[:3], "×".join(map(str, box))
        zooms = " × ".join(f"{zoom:g}" for zoom in self._image.header.get_zooms()[:3])
        self.told = f"{path}: {'×'.join(map(str, own))} voxels of {zooms} mm; the net sees {seen}, {rule}"

    def outputs(self, prefix: str) -> tuple[Path, ...]:
        return Path(f"{prefix}.nii.gz"), Path(f"{prefix}.png")

    def where(self, place: Sequence[int]) -> str:
        mm = ", ".join(f"{x:.1f}" for x in self._mm(place))
        return f"voxel ({', '.join(map(str, self._own_place(place)))}), at ({mm}) mm"

    def write(self, prefix: str, heat: Sample, place: Sequence[int], title: str) -> None:
        volume, picture = self.outputs(prefix)
        nifti, own = import_nibabel(), self._in_own_axes(heat)
        kind = nifti.Nifti2Image if isinstance(self._image.header, nifti.Nifti2Header) else nifti.Nifti1Image
        header = self._image.header.copy()
        header.extensions.clear()  # they tell of the patient, not of the grid
        image = kind(own, self._image.affine, header)
        image.set_data_dtype(np.float32)
        image.header["cal_min"], image.header["cal_max"] = 0, 1  # what viewers begin and end their colours with
        image.header["descrip"] = b"Grad-CAM"
        with atomic_file(volume) as file:
            file.write(gzip.compress(image.to_bytes(), mtime=0))
        draw(picture, title, self._panels(heat, place))

    def _panels(self, heat: Sample, place: Sequence[int]) -> list[Panel]:
        """The planes through ``place``, each seen with its first axis to the right and its second one up."""
        panels = []
        low, high = (float(x) for x in np.percentile(self._voxels, (0.5, 99.5)))
        for across, (name, right, up) in enumerate(PLANES):
            edges = [self._edges(axis, place) for axis in (right, up)]
            panels.append(
                Panel(
                    title=f"{name}, {self._mm(place)[across]:.1f} mm",
                    back=np.take(self._voxels, place[across], across).T,
                    heat=np.take(heat, place[across], across).T,
                    extent=(*edges[0], *edges[1]),
                    labels=(f"{SIDES[right]} (mm)", f"{SIDES[up]} (mm)"),
                    mark=(self._mm(place)[right], self._mm(place)[up]),
                    grey=(low, high) if high > low else None,
                )
            )
        return panels

    def _edges(self, axis: int, place: Sequence[int]) -> tuple[float, float]:
        """Where the grid begins and ends along the canonical ``axis`` through ``place``, in mm of that axis."""
        ends = []
        for index in (-0.5, self._voxels.shape[axis] - 0.5):
            at: list[float] = list(place)
            at[axis] = index
            ends.append(self._mm(at)[axis])
        return ends[0], ends[1]

    def _mm(self, place: Sequence[float]) -> list[float]:
        """A place in canonical axes, in mm of the scan's space: to the right, to the front, up."""
        back = self._orientations.inv_ornt_aff(self._orientation, self._image.shape[:3])
        found: list[float] = (self._image.affine @ back @ np.array([*place, 1.0]))[:3].tolist()
        return found

    def _own_place(self, place: Sequence[int]) -> tuple[int, ...]:
        """A place in canonical axes as an index into the file's own."""
        back = self._orientations.inv_ornt_aff(self._orientation, self._image.shape[:3])
        return tuple(round(x) for x in (back @ np.array([*place, 1.0]))[:3].tolist())

    def _in_own_axes(self, heat: Sample) -> Sample:
        """The inverse of what read_nifti does to axes."""
        turn = self._orientations.ornt_transform(CANONICAL, self._orientation)
        return np.ascontiguousarray(self._orientations.apply_orientation(heat, turn), np.float32)
