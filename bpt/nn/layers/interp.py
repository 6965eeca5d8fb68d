"""Interp and SpatialTransformer: resize and transform planes by bilinear interpolation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from bpt.graph.layer_spec import Arity, LayerShapes, LayerSpec, Shape, count
from bpt.nn.layers.axes import show_bottoms
from bpt.nn.layers.base import LAYERS, Family, Layer
from bpt.nn.pass_context import PassContext


@LAYERS.register("Interp")
class Interp(Layer):
    """A bilinear resizing of ``(N, channels, H, W)`` to other sizes; corners are aligned with corners.

    First ``-pad_beg`` rows and columns are cut off at the beginning and ``-pad_end`` at the end. One of these gives the
    size of the top, from the remaining size ``in``:

    - ``height`` and ``width``,
    - ``(in - 1) / shrink_factor + 1``, rounded down,
    - ``in + (in - 1) · (zoom_factor - 1)``, or both factors, the shrinking first,
    - or the size of the second bottom, of which only the shape matters, and whose diff is 0.

    (DeepLab's layer silently prefers factors to ``height`` and ``width``.)
    """

    arity = Arity(bottoms=(1, 2))
    sample_independent = True
    family = Family.POOLING
    flops_per_top = 7  # 4 products and 3 sums
    is_linear = True

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        self.size = _Size.read(spec)

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        param = spec.param.interp_param
        bottom = bottoms[0]
        for shape in bottoms:
            if len(shape) != 4:
                raise spec.error(f"needs bottoms (N, channels, H, W): {show_bottoms(spec, bottoms)}", "bottom")
        for field in ("height", "width", "zoom_factor", "shrink_factor"):
            value = getattr(param, field)
            if param.HasField(field) and value < (1 if "factor" in field else 0):
                raise spec.error(f"{field} must be at least 1, not {value}", "interp_param", field)
        for field in ("pad_beg", "pad_end"):
            if getattr(param, field) > 0:
                raise spec.error(
                    f"{field} must be 0, or negative to cut off, not {getattr(param, field)}", "interp_param", field
                )
        factors = param.HasField("zoom_factor") or param.HasField("shrink_factor")
        if bool(param.height) != bool(param.width):
            field, other = ("height", "width") if param.height else ("width", "height")
            raise spec.error(
                f"{field} is given alone; height and width go together (no {other})", "interp_param", field
            )
        ways = [bool(param.height), factors, len(bottoms) == 2]
        if sum(ways) != 1:
            problem = "needs" if not any(ways) else "has several sizes for its top; give one of"
            raise spec.error(
                f"{problem} height and width, zoom_factor and/or shrink_factor, or a second bottom of the wanted size",
                "interp_param",
            )
        if min(bottom[2:]) + param.pad_beg + param.pad_end < 1:
            raise spec.error(
                f"pad_beg {param.pad_beg} and pad_end {param.pad_end} leave nothing of a bottom of shape {bottom}",
                "interp_param",
            )
        sizes = _Size.read(spec).of_top(bottoms)
        if min(sizes) < 1:
            raise spec.error(f"the top would have no elements: {show_bottoms(spec, bottoms)}", "bottom")
        return LayerShapes(((*bottom[:2], *sizes),))

    def forward(self, *bottoms: Tensor) -> Tensor:
        x = bottoms[0]
        height, width = self.size.of_top([bottom.shape for bottom in bottoms])
        first, last = -self.size.pad_beg, self.size.pad_end
        if first or last:
            x = x[:, :, first : x.shape[2] + last, first : x.shape[3] + last]
        return functional.interpolate(x, (height, width), mode="bilinear", align_corners=True)


@dataclass(frozen=True)
class _Size:
    """The settings of ``interp_param``, and the sizes of the top that they give."""

    height: int
    width: int
    zoom: int
    shrink: int
    pad_beg: int
    pad_end: int

    @classmethod
    def read(cls, spec: LayerSpec) -> _Size:
        param = spec.param.interp_param
        return cls(param.height, param.width, param.zoom_factor, param.shrink_factor, param.pad_beg, param.pad_end)

    def of_top(self, bottoms: Sequence[Sequence[int]]) -> tuple[int, int]:
        """Return height and width of the top for bottoms of these shapes."""
        if len(bottoms) == 2:
            return bottoms[1][2], bottoms[1][3]
        if self.height:
            return self.height, self.width
        return self._scaled(bottoms[0][2]), self._scaled(bottoms[0][3])

    def _scaled(self, size: int) -> int:
        size = (size + self.pad_beg + self.pad_end - 1) // self.shrink + 1  # the factors are 1 unless given
        return size + (size - 1) * (self.zoom - 1)


NUMBERS = tuple(f"theta_{row}_{column}" for row in (1, 2) for column in (1, 2, 3))


@LAYERS.register("SpatialTransformer")
class SpatialTransformer(Layer):
    """The first bottom ``(N, C, H, W)``, interpolated where ``θ`` maps each place of the top.

    The second bottom ``(N, 6)`` holds ``θ``: 2 × 3 numbers for each sample, row by row. It omits the numbers that
    ``theta_i_j`` fix. Rows and columns run from -1 on, in units of half the size of the top. ``θ (row, column, 1)`` is
    then a row and a column of the bottom in the same units. Outside the bottom, values are 0. The top has ``output_H``
    rows and ``output_W`` columns; the defaults are those of the bottom. With ``to_compute_dU: false`` the first bottom
    gets no diff. (Jaderberg et al., *Spatial Transformer Networks*, 2015, eq. 1 and 5.)
    """

    arity = Arity(bottoms=(2, 2))
    within_batch = sample_independent = True
    family = Family.POOLING
    flops_per_top = 8  # 4 products and sums

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        self.param = spec.param.st_param

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        param, (images, theta) = spec.param.st_param, bottoms
        for field, only in (("transform_type", "affine"), ("sampler_type", "bilinear")):
            if getattr(param, field) != only:
                raise spec.error(f'{field} must be "{only}", found "{getattr(param, field)}"', "st_param", field)
        left = sum(not param.HasField(name) for name in NUMBERS)
        if len(images) != 4 or theta[:1] != images[:1] or count(theta[1:]) != left:
            raise spec.error(
                f"needs images (N, C, H, W) and {left} numbers for each, those of θ that no theta_i_j fixes: "
                f"{show_bottoms(spec, bottoms)}",
                "bottom",
            )
        sizes = (param.output_H or images[2], param.output_W or images[3])
        if min(sizes) < 1:
            raise spec.error("output_H and output_W must be at least 1", "st_param")
        return LayerShapes(((*images[:2], *sizes),))

    def forward(self, *bottoms: Tensor) -> Tensor:
        images = bottoms[0] if self.param.to_compute_dU else bottoms[0].detach()
        old, new = images.shape[2:], (self.param.output_H or images.shape[2], self.param.output_W or images.shape[3])
        rows, columns = (torch.arange(cells, device=images.device).to(images) * (2 / cells) - 1 for cells in new)
        down, right = torch.meshgrid(rows, columns, indexing="ij")
        places = torch.stack((down, right, torch.ones_like(down)), 2)
        led = torch.einsum("hwk,nik->nhwi", places, self._theta(bottoms[1]))
        # torch counts from the corners of the first pixels, and has columns first.
        grid = torch.stack((led[..., 1] + 1 / old[1], led[..., 0] + 1 / old[0]), 3)
        return functional.grid_sample(images, grid, padding_mode="zeros", align_corners=False)

    def _theta(self, given: Tensor) -> Tensor:
        """Return the complete transforms (N, 2, 3)."""
        given = given.flatten(1)
        numbers, place = [], 0
        for name in NUMBERS:
            if self.param.HasField(name):
                numbers.append(given.new_full((len(given),), getattr(self.param, name)))
            else:
                numbers.append(given[:, place])
                place += 1
        return torch.stack(numbers, 1).view(-1, 2, 3)
