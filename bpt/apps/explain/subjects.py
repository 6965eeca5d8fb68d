"""The subjects of an explanation: NIfTI scans and images, and the figure that shows the map over them."""

from __future__ import annotations

import gzip
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bpt.apps.explain.model_input import ExplainedSubject, Preprocessing, Sample
from bpt.apps.pictures.image_input import ImageInput
from bpt.base.atomic import atomic_file
from bpt.base.errors import DataError, FileError, UserError
from bpt.base.user_files import UnreadableError, read_bytes
from bpt.config.proto import bpt_pb2 as pb
from bpt.data.image import decode_image
from bpt.data.nifti import import_nibabel, open_nifti, read_nifti
from bpt.data.volume_source import resample
from bpt.graph.layer_spec import Shape
from bpt.train.outer.report.style import MEDIUM, SKY, new_figure, save

COLOURS = "inferno"
STRONGEST = 0.7  # opacity of the map where it is 1
SEVERAL, ONE = (8.8, 3.2), (5.6, 4.6)  # size in inches of a figure with several panels, and with one
LETTERS = 13.5  # of a title, in an inch of a line


@dataclass(frozen=True)
class PlanePanel:
    """A plane of a figure.

    Attributes:
        title: the title.
        back: the picture below the map: (rows, columns) in grey, or (rows, columns, 3) with red, green and blue.
        heat: the map (rows, columns), from 0 to 1.
        extent: the coordinates of the left, right, bottom and top edge.
        labels: the labels of the horizontal and the vertical axis.
        mark: the place of the map's maximum, in coordinates.
        grey: the values that are black and white; ``None``: the lowest and the highest of ``back``.
        origin: the position of row 0, "upper" or "lower".
    """

    title: str
    back: NDArray[Any]
    heat: NDArray[np.float32]
    extent: tuple[float, float, float, float]
    labels: tuple[str, str]
    mark: tuple[float, float]
    grey: tuple[float, float] | None = None
    origin: Literal["upper", "lower"] = "lower"


def draw(path: str | os.PathLike[str], title: str, panels: Sequence[PlanePanel]) -> None:
    """Write a PNG file with the panels beside each other.

    The larger the map, the more it hides the picture below; where it is 0, it hides nothing.

    Raises:
        UserError: matplotlib is missing.
        WriteError: the file could not be written.
    """
    size = SEVERAL if len(panels) > 1 else ONE
    title = fill(title, round(LETTERS * size[0]), break_on_hyphens=False)  # names of classes may be long
    figure, places = new_figure(title, len(panels), beside=True)
    figure.set_size_inches(size)
    for axes, panel in zip(places, panels, strict=True):
        low, high = panel.grey or (None, None)
        axes.imshow(
            panel.back, cmap="gray", vmin=low, vmax=high, extent=panel.extent, origin=panel.origin,
            interpolation="nearest",
        )  # fmt: skip
        shown = axes.imshow(
            panel.heat, cmap=COLOURS, vmin=0, vmax=1, alpha=STRONGEST * panel.heat, extent=panel.extent,
            origin=panel.origin, interpolation="nearest",
        )  # fmt: skip
        axes.axvline(panel.mark[0], color=SKY, linewidth=0.6, linestyle=":")
        axes.axhline(panel.mark[1], color=SKY, linewidth=0.6, linestyle=":")
        axes.set_title(panel.title)
        axes.set_xlabel(panel.labels[0])
        axes.set_ylabel(panel.labels[1])
    from matplotlib.cm import ScalarMappable  # noqa: PLC0415  an extra, and slow to import

    bar = figure.colorbar(ScalarMappable(shown.norm, shown.cmap), ax=places, shrink=0.8, pad=0.02)
    bar.set_label("heat", fontsize=MEDIUM)
    save(figure, path)


CANONICAL = np.array([[0, 1], [1, 1], [2, 1]])  # axis and direction of RAS+, as nibabel writes orientations
SIDES = ("left → right", "posterior → anterior", "inferior → superior")
# The planes across axis 0, 1 and 2, each with the axes that point to the right and up.
PLANES = (("sagittal", 1, 2), ("coronal", 0, 2), ("axial", 0, 1))


class Scan(ExplainedSubject):
    """The NIfTI file at ``path``, read and resampled as VolumeData does.

    ``positions`` and the arrays that ``write`` takes are on the scan's grid in canonical axes (RAS+). The written file
    has the axes of the scan's file.

    Args:
        path: the file.
        shape: the shape of the net's input, (channels, D, H, W).
        preprocessing: the transformation of intensities.

    Raises:
        UserError: the net takes more than one channel, or nibabel is missing.
        FileError: the file cannot be used.
    """

    def __init__(self, path: str, shape: Shape, preprocessing: Preprocessing) -> None:
        channels, *box = shape
        if channels != 1:
            raise UserError(f"the net's input has {channels} channels, a scan one")
        self._image: Any = open_nifti(path)
        self._orientations = import_nibabel().orientations
        self._orientation = self._orientations.io_orientation(self._image.affine)
        self._voxels = read_nifti(path)
        self._path = path
        self.sample = preprocessing(resample(self._voxels, tuple(box))[np.newaxis], path)
        # The inverse of what resample does: the centres of the first and the last voxel stay where they are.
        self.positions = tuple(
            np.arange(m) * (n - 1) / (m - 1) if m > 1 else np.array([(n - 1) / 2])
            for m, n in zip(self._voxels.shape, box, strict=True)
        )
        own, seen = self._image.shape[:3], "×".join(map(str, box))
        zooms = " × ".join(f"{zoom:g}" for zoom in self._image.header.get_zooms()[:3])
        self.description = (
            f"{path}: {'×'.join(map(str, own))} voxels of {zooms} mm; the net sees {seen}, {preprocessing}"
        )

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
        header.extensions.clear()  # they describe the patient, not the grid
        image = kind(own, self._image.affine, header)
        image.set_data_dtype(np.float32)
        image.header["cal_min"], image.header["cal_max"] = 0, 1  # the range of viewers' colours
        image.header["descrip"] = b"Grad-CAM"
        with atomic_file(volume) as file:
            file.write(gzip.compress(image.to_bytes(), mtime=0))
        draw(picture, title, self._panels(heat, place))

    def _panels(self, heat: Sample, place: Sequence[int]) -> list[PlanePanel]:
        """Return the planes through ``place``, each with its first axis to the right and its second one up."""
        panels = []
        low, high = (float(x) for x in np.percentile(self._voxels, (0.5, 99.5)))
        for across, (name, right, up) in enumerate(PLANES):
            edges = [self._edges(axis, place) for axis in (right, up)]
            panels.append(
                PlanePanel(
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
        """Return the first and the last edge of the grid along the canonical ``axis`` through ``place``, in mm."""
        ends = []
        for index in (-0.5, self._voxels.shape[axis] - 0.5):
            at: list[float] = list(place)
            at[axis] = index
            ends.append(self._mm(at)[axis])
        return ends[0], ends[1]

    def _mm(self, place: Sequence[float]) -> list[float]:
        """Return the mm in the scan's space (to the right, to the front, up) of a place in canonical axes."""
        back = self._orientations.inv_ornt_aff(self._orientation, self._image.shape[:3])
        found: list[float] = (self._image.affine @ back @ np.array([*place, 1.0]))[:3].tolist()
        return found

    def _own_place(self, place: Sequence[int]) -> tuple[int, ...]:
        """Return the index in the file's own axes of a place in canonical axes."""
        back = self._orientations.inv_ornt_aff(self._orientation, self._image.shape[:3])
        return tuple(round(x) for x in (back @ np.array([*place, 1.0]))[:3].tolist())

    def _in_own_axes(self, heat: Sample) -> Sample:
        """Return ``heat`` in the file's own axes; this inverts the reorientation of read_nifti."""
        turn = self._orientations.ornt_transform(CANONICAL, self._orientation)
        return np.ascontiguousarray(self._orientations.apply_orientation(heat, turn), np.float32)


CHANNELS = (1, 3)


class ExplainedPicture(ExplainedSubject):
    """The image file at ``path``, in grey or colour (blue, green, red: Caffe's order), prepared as the net's input.

    Args:
        path: the file.
        shape: the shape of the net's input, (channels, H, W).
        preprocessing: the preparation of images; or the transformation of pixels (0 … 255), if the whole image is
            resized to the net's input.

    Raises:
        UserError: the net takes neither 1 nor 3 channels, or Pillow is missing.
        FileError: the file cannot be used.
    """

    def __init__(self, path: str, shape: Shape, preprocessing: Preprocessing | ImageInput) -> None:
        channels, *box = shape
        if channels not in CHANNELS:
            raise UserError(f"the net's input has {channels} channels; an image has 1 (grey) or 3 (colour)")
        try:
            pixels = decode_image(read_bytes(path), channels)
        except (UnreadableError, DataError) as error:
            raise FileError(path, str(error)) from None
        self._pixels = pixels
        if isinstance(preprocessing, ImageInput):
            prepared = preprocessing([path])
            self.sample = prepared.input[0]
        else:
            prepared = ImageInput(pb.ImagePreprocessing(), shape, "")([path])
            self.sample = preprocessing(prepared.input[0], path)
        height, width = pixels.shape[1:]
        xmin, ymin, xmax, ymax = prepared.parts[0].tolist()
        # The grid of the net's pixels covers this part of the image; this is the inverse mapping.
        self.positions = tuple(
            ((np.arange(m) + 0.5) / m - low) / (high - low) * n - 0.5
            for m, n, low, high in zip((height, width), box, (ymin, xmin), (ymax, xmax), strict=True)
        )
        self.description = f"{path}: {height}×{width} pixels; the net sees {'×'.join(map(str, box))}, {preprocessing}"

    def outputs(self, prefix: str) -> tuple[Path, ...]:
        return (Path(f"{prefix}.png"),)

    def where(self, place: Sequence[int]) -> str:
        return f"row {place[0]}, column {place[1]}"

    def write(self, prefix: str, heat: Sample, place: Sequence[int], title: str) -> None:
        height, width = heat.shape
        red_last = self._pixels.transpose(1, 2, 0)
        panel = PlanePanel(
            title="",
            back=red_last[..., ::-1] if red_last.shape[2] == 3 else red_last[..., 0],
            heat=heat,
            extent=(-0.5, width - 0.5, height - 0.5, -0.5),
            labels=("column", "row"),
            mark=(place[1], place[0]),
            grey=(0, 255),
            origin="upper",
        )
        draw(self.outputs(prefix)[0], title, [panel])
