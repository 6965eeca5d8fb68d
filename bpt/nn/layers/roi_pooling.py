"""ROIPooling and PSROIPooling: regions of features of any size, reduced to the same number of bins."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_spec import LayerShapes, LayerSpec, Shape
from bpt.nn.kernels.region_kernels import bins_along, mean_of_bins, round_away
from bpt.nn.layers.axes import show_bottoms
from bpt.nn.layers.base import LAYERS, setting
from bpt.nn.layers.graph_tracing import is_exported
from bpt.nn.layers.region_operators import max_roi_pool, pooled
from bpt.nn.layers.regions import RegionLayer, check_regions
from bpt.nn.pass_context import PassContext

PS_FIELD = "psroi_pooling_param"


@LAYERS.register("ROIPooling")
class ROIPooling(RegionLayer):
    """The largest number in each of ``pooled_h`` × ``pooled_w`` bins of each region: ``(R, channels, bins, bins)``.

    Corners are multiplied by ``spatial_scale`` and rounded to cells, both of which belong to the region. A region has
    at least one cell. Bins overlap where its size does not divide. A bin beyond the plane is 0. (Girshick, *Fast
    R-CNN*, 2015, 2.1.)
    """

    settings = "roi_pooling_param"
    scale = setting(float, "roi_pooling_param.spatial_scale")

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        self.bins = self.bins_of(spec)

    def forward(self, *bottoms: Tensor) -> Tensor:
        if is_exported():
            return max_roi_pool(bottoms[0], bottoms[1], *self.bins, self.scale)
        features = bottoms[0]
        images, corners = self.regions(bottoms[1], len(features))
        return pooled(features, images, corners, self.bins, self.scale)


@LAYERS.register("PSROIPooling")
class PSROIPooling(RegionLayer):
    """The mean of each of ``group_size``² bins of each region; each bin has channels of its own.

    Bottoms: features ``(N, output_dim · group_size², H, W)`` and regions; top ``(R, output_dim, group_size,
    group_size)``. Bin (i, j) of output ``d`` reads channel ``(d · group_size + i) · group_size + j``. Corners are
    rounded to pixels, both of which belong to the region, and then multiplied by ``spatial_scale``. A region has at
    least a tenth of a cell. A bin beyond the plane is 0. (Dai et al., *R-FCN*, 2016, eq. 1.)
    """

    settings = PS_FIELD
    outputs = setting(int, "psroi_pooling_param.output_dim")
    bins = setting(int, "psroi_pooling_param.group_size")
    scale = setting(float, "psroi_pooling_param.spatial_scale")

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        param = spec.param.psroi_pooling_param
        for name in ("spatial_scale", "output_dim", "group_size"):
            if not getattr(param, name) > 0:
                raise spec.error(
                    f"{PS_FIELD} needs spatial_scale, output_dim and group_size, each above 0", PS_FIELD, name
                )
        check_regions(spec, bottoms)
        wanted = param.output_dim * param.group_size**2
        if bottoms[0][1] != wanted:
            raise spec.error(
                f"needs output_dim · group_size² = {wanted} channels: {show_bottoms(spec, bottoms[:1])}", "bottom"
            )
        return LayerShapes(((bottoms[1][0], param.output_dim, param.group_size, param.group_size),))

    @classmethod
    def in_words(cls, layer: pb.LayerParameter, axes: int) -> Sequence[str]:
        return (f"{layer.psroi_pooling_param.group_size}×{layer.psroi_pooling_param.group_size}",)

    def forward(self, *bottoms: Tensor) -> Tensor:
        features = bottoms[0]
        images, corners = self.regions(bottoms[1], len(features))
        pixels = round_away(corners)
        starts, ends = pixels[:, :2] * self.scale, (pixels[:, 2:] + 1) * self.scale
        sizes = (ends - starts).clamp(min=0.1)
        rows = bins_along(starts[:, 1], sizes[:, 1], self.bins, features.shape[2], whole=False)
        columns = bins_along(starts[:, 0], sizes[:, 0], self.bins, features.shape[3], whole=False)
        shape = (self.outputs, self.bins, self.bins)
        channels = torch.arange(features.shape[1], device=features.device).view(shape)
        return mean_of_bins(features, images, channels, rows, columns)
