"""ROIAlign: bins of regions at places between cells. Three layers of Caffe's forks have this name."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from bpt.graph.layer_spec import LayerShapes, LayerSpec, Shape
from bpt.nn.kernels.region_kernels import weighted, weights_along
from bpt.nn.layers.base import LAYERS
from bpt.nn.layers.graph_tracing import is_exported
from bpt.nn.layers.region_operators import aligned, roi_align
from bpt.nn.layers.regions import RegionLayer
from bpt.nn.pass_context import PassContext

FIELD = "roi_align_param"
SAMPLES = torch.tensor([-0.5, 0.5])  # the sampled places of a region with the ends -1 and 1


@LAYERS.register("ROIAlign")
class ROIAlign(RegionLayer):
    """``pooled_h`` × ``pooled_w`` bins of each region, whose corners are multiplied by ``spatial_scale``, not rounded.

    The fields of ``roi_align_param`` decide which of three layers is meant:

    - With ``sampling_ratio``, a bin is the mean of this number of points on each axis, each interpolated between its
      neighbours. Below 1, the number is that of the bin's cells. A region has at least one cell. (He et al., *Mask
      R-CNN*, 2017, 3.)
    - With ``pad_ratio``, which may be 0, a bin is the mean of its four corners; cells are squares around their centres.
      Each region is first widened by this part of its size on each side. (Cai, Vasconcelos, *Cascade R-CNN*, 2018.)
    - With neither, a bin is the largest of four sums over its first four cells. The factors say how near a cell is to
      each of the four points at a quarter and three quarters of the region. (Dhaliwal's, for *Mask R-CNN*.) That layer
      reads a row and a column beyond the plane, where the next numbers in memory are. bpt keeps this; behind the last
      plane it reads 0.
    """

    settings = FIELD

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        param = spec.param.roi_align_param
        self.bins, self.scale = self.bins_of(spec), param.spatial_scale
        self.sampling = param.sampling_ratio if param.HasField("sampling_ratio") else None
        self.pad = param.pad_ratio if param.HasField("pad_ratio") else None

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        param = spec.param.roi_align_param
        if param.HasField("sampling_ratio") and param.HasField("pad_ratio"):
            raise spec.error(
                "sampling_ratio belongs to Mask R-CNN's ROIAlign and pad_ratio to Cascade R-CNN's; give one of them",
                FIELD,
                "pad_ratio",
            )
        return super().infer(spec, bottoms)

    def forward(self, *bottoms: Tensor) -> Tensor:
        if self.sampling is not None and is_exported():
            return roi_align(bottoms[0], bottoms[1], *self.bins, self.scale, self.sampling)
        features = bottoms[0]
        images, corners = self.regions(bottoms[1], len(features))
        if self.pad is not None:
            return self._corners(features, images, corners, self.pad)
        if self.sampling is not None:
            return aligned(features, images, corners * self.scale, self.bins, self.sampling)
        return self._nearest(features, images, corners * self.scale)

    def _corners(self, features: Tensor, images: Tensor, corners: Tensor, pad: float) -> Tensor:
        padding = (corners[:, 2:] - corners[:, :2] + 1) * pad
        starts = (corners[:, :2] - padding) * self.scale - 0.5
        sizes = (corners[:, 2:] + padding) * self.scale - 0.5 - starts
        weights = []
        for axis in (1, 0):
            edges = torch.arange(self.bins[1 - axis] + 1, device=sizes.device) / self.bins[1 - axis]
            points = starts[:, axis, None] + edges * sizes[:, axis, None]
            factors = weights_along(points, features.shape[3 - axis], margin=0.5)
            weights.append((factors[:, :-1] + factors[:, 1:]) / 2)
        return weighted(features, images, weights[0] * (sizes > 0).all(1).view(-1, 1, 1), weights[1])

    def _nearest(self, features: Tensor, images: Tensor, corners: Tensor) -> Tensor:
        channels, height, width = features.shape[1:]
        row, rows, no_rows = _cells(corners[:, 1], corners[:, 3], self.bins[0], height)
        column, columns, no_columns = _cells(corners[:, 0], corners[:, 2], self.bins[1], width)
        k = torch.arange(4, device=row.device)  # the first cells of each bin, row by row
        across = columns.clamp(min=1)[:, None, :, None]
        shape = (*rows.shape, columns.shape[1], 4)
        y = (row[:, :, None, None] + k // across).expand(shape)
        x = (column[:, None, :, None] + k % across).expand(shape)
        near_y, near_x = _nearness(y, corners[:, 1], corners[:, 3]), _nearness(x, corners[:, 0], corners[:, 2])
        taken = k < (rows[:, :, None] * columns[:, None, :]).unsqueeze(3)
        factors = (near_x.unsqueeze(5) * near_y.unsqueeze(4)).flatten(4) * taken.unsqueeze(4)
        plane = images[:, None] * channels + torch.arange(channels, device=row.device)
        flat = (plane * height * width)[:, :, None, None, None] + (y * width + x).unsqueeze(1)
        flat = flat.clamp(max=features.numel())
        numbers = functional.pad(features.reshape(-1), (0, 1)).gather(0, flat.flatten()).view(flat.shape)
        largest = (numbers.unsqueeze(5) * factors.unsqueeze(1)).sum(4).max(4).values
        nothing = (no_rows[:, :, None] | no_columns[:, None, :]).unsqueeze(1)
        return torch.where(nothing & (largest < 0), 0, largest)


def _cells(start: Tensor, end: Tensor, bins: int, cells: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return for each bin on one axis: its first cell, its number of cells, and whether it has no extent."""
    size = (end - start + 1).clamp(min=1).unsqueeze(1) / bins
    edges = (torch.arange(bins + 1, device=size.device) * size + start.unsqueeze(1)).clamp(0, cells)
    first = edges[:, :-1].ceil().long()
    number = (edges[:, 1:].floor().long() + 1 - first).clamp(min=0)
    return first, number, edges[:, 1:] <= edges[:, :-1]


def _nearness(cells: Tensor, start: Tensor, end: Tensor) -> Tensor:
    """Return factors from 0 to 1 of cells ``(R, bins, bins, 4)`` on one axis, for each SAMPLE of their regions."""
    start, size = (ends.view(-1, 1, 1, 1) for ends in (start, end - start))
    place = torch.where(size == 0, 0, 2 * (cells - start) / size - 1).clamp(-1, 1)
    return (1 - (SAMPLES.to(place) - place.unsqueeze(4)).abs()).clamp(min=0)
