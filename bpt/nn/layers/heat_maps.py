"""ImResize and Nms: heat maps of several scales as one, and their peaks (OpenPose)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from bpt.graph.layer_spec import LayerShapes, LayerSpec, Shape, count
from bpt.nn.layers.axes import show_bottoms
from bpt.nn.layers.base import ALL_BOTTOMS, LAYERS, Family, Layer
from bpt.nn.pass_context import PassContext

_NEAR = 1e-5  # distance in cells below which a place counts as a whole number


@LAYERS.register("ImResize")
class ImResize(Layer):
    """The mean of N maps ``(N, C, H, W)`` of an image at N scales, each resized: ``(1, C, height, width)``.

    The size is ``target_spatial_height`` × ``target_spatial_width`` (368 × 368), or ``factor`` times the bottom's. Map
    n shows the image in the central ``start_scale - n · scale_gap`` of its sides; the rest is cut off. Between four
    cells the curve is that of Keys with a = -1/2. Beyond the map its border continues. This follows OpenPose's Caffe on
    a GPU; on a CPU that omits all maps except the first.
    """

    whole_batch_only = "its samples are scales of one image"
    within_batch = True
    family = Family.POOLING
    is_linear = True

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        self.param = spec.param.imresize_param

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        param, (shape,) = spec.param.imresize_param, bottoms
        if len(shape) != 4 or not shape[0]:
            raise spec.error(f"needs a bottom (scales, C, H, W): {show_bottoms(spec, bottoms)}", "bottom")
        height, width = param.target_spatial_height, param.target_spatial_width
        if param.factor > 0:
            height, width = int(shape[2] * param.factor), int(shape[3] * param.factor)
        if min(height, width) < 1 or param.factor < 0:
            raise spec.error("the target's height and width, or the factor, must be above 0", "imresize_param")
        for image in range(shape[0]):
            for cells in shape[2:]:
                cut = _cut(cells, image, param.start_scale, param.scale_gap)
                if not 0 <= 2 * cut < cells:
                    raise spec.error(
                        f"start_scale {param.start_scale:g} and scale_gap {param.scale_gap:g} leave map {image} of "
                        f"{shape[0]} nothing, or more than it has",
                        "imresize_param",
                    )
        return LayerShapes(((1, shape[1], height, width),))

    @classmethod
    def flops(cls, spec: LayerSpec, bottoms: Sequence[Shape], tops: Sequence[Shape]) -> int:
        return 2 * 20 * count(tops[0]) * bottoms[0][0]  # 5 curves of 4 cells each

    def forward(self, *bottoms: Tensor) -> Tensor:
        maps = bottoms[0]
        (_, _, *sizes), *_ = self.infer(self.spec, [tuple(maps.shape)]).tops
        resized = []
        for image, one in enumerate(maps):
            cuts = [_cut(cells, image, self.param.start_scale, self.param.scale_gap) for cells in one.shape[1:]]
            down, right = (
                _curves(cells, cut, size).to(maps) for cells, cut, size in zip(one.shape[1:], cuts, sizes, strict=True)
            )
            resized.append(down @ one @ right.t())
        return torch.stack(resized).mean(0, keepdim=True)


def _cut(cells: int, image: int, start: float, gap: float) -> int:
    """Return how many of an axis' ``cells`` are cut off at each end of a map."""
    return math.floor(cells // 2 * (1 - start + image * gap))


def _curves(cells: int, cut: int, size: int) -> Tensor:
    """Return the weight of each of ``cells`` of an axis in each of ``size`` new ones: (size, cells), float64."""
    kept = cells - 2 * cut
    places = (torch.arange(size, dtype=torch.float64) - (size / kept / 2 - 0.5)) * (kept / size)
    first = (places + _NEAR).long().clamp(min=0)
    t = places - first
    weights = (
        -t / 2 + t**2 - t**3 / 2,
        1 - 5 / 2 * t**2 + 3 / 2 * t**3,
        t / 2 + 2 * t**2 - 3 / 2 * t**3,
        -(t**2) / 2 + t**3 / 2,
    )
    matrix = torch.zeros(size, cells, dtype=torch.float64)
    for offset, weight in zip(range(-1, 3), weights, strict=True):
        taken = (first + offset).clamp(0, kept - 1) + cut
        matrix.scatter_add_(1, taken.unsqueeze(1), weight.unsqueeze(1))
    return matrix


@LAYERS.register("Nms")
class Nms(Layer):
    """The peaks of each of the first ``num_parts`` maps of ``(N, C, H, W)``: ``(N, num_parts, max_peaks + 1, 3)``.

    Row 0 holds their number, the others (x, y, score), row by row of the map; unused rows are 0. A peak is at least
    ``threshold``, larger than its eight neighbours, and not on the border. Its place is the mean of the 5 × 5 places
    around it, weighted by scores above the threshold. The bottom gets no diff. (From OpenPose's Caffe; Cao et al.,
    *OpenPose*, 2018, 3.4.)
    """

    within_batch = sample_independent = no_collectives = True
    family = Family.LOSS
    bottoms_without_diff = ALL_BOTTOMS

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        self.param = spec.param.nms_param

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        param, (shape,) = spec.param.nms_param, bottoms
        if len(shape) != 4 or shape[1] < param.num_parts or not param.num_parts:
            raise spec.error(
                f"needs a bottom (N, C, H, W) with a map for each of num_parts {param.num_parts}: "
                f"{show_bottoms(spec, bottoms)}",
                "bottom",
            )
        return LayerShapes(((shape[0], param.num_parts, param.max_peaks + 1, 3),))

    @torch.no_grad()
    def forward(self, *bottoms: Tensor) -> Tensor:
        param = self.param
        maps = bottoms[0][:, : param.num_parts]
        images, parts, height, width = maps.shape
        top = maps.new_zeros(images, parts, param.max_peaks + 1, 3)
        if min(height, width) < 3 or not images:
            return top
        middle = maps[:, :, 1:-1, 1:-1]
        peaks = middle >= param.threshold
        for down in range(3):
            for right in range(3):
                if (down, right) != (1, 1):
                    peaks &= middle > maps[:, :, down : down + height - 2, right : right + width - 2]
        flat = functional.pad(peaks, (1, 1, 1, 1)).flatten(2)
        order = flat.cumsum(2)
        image, part, place = (flat & (order <= param.max_peaks)).nonzero(as_tuple=True)
        weights = torch.where(maps > param.threshold, maps, 0)
        column, row = torch.arange(width).to(maps), torch.arange(height).to(maps).unsqueeze(1)
        sums, across, down_ = (
            functional.avg_pool2d(values, 5, 1, 2, divisor_override=1).flatten(2)[image, part, place]
            for values in (weights, weights * column, weights * row)
        )
        alone = sums == 0  # a peak that equals the threshold
        x = torch.where(alone, (place % width).to(maps), across / sums)
        y = torch.where(alone, (place // width).to(maps), down_ / sums)
        top[image, part, order[image, part, place]] = torch.stack((x, y, maps.flatten(2)[image, part, place]), 1)
        top[:, :, 0, 0] = order[:, :, -1].clamp(max=param.max_peaks).to(maps)
        return top
