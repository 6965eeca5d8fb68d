"""Crop and CropCenter: cut a blob to the size of another one, or its borders off."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from bpt.graph.layer_spec import Arity, LayerShapes, LayerSpec, Shape
from bpt.nn.layers.axes import canonical_axis, show_bottoms
from bpt.nn.layers.base import LAYERS, Family, Layer
from bpt.nn.pass_context import PassContext


@LAYERS.register("Crop")
class Crop(Layer):
    """The first bottom from ``offset`` on, in the second bottom's size on the axes from ``axis`` on.

    ``offset`` is given once for these axes, or once for each of them. The default is 0. Only the shape of the second
    bottom matters, and its diff is 0.
    """

    arity = Arity(bottoms=(2, 2))
    within_batch = sample_independent = True
    computes = False
    family = Family.JOIN

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        self.axis = spec.param.crop_param.axis
        self.offset = tuple(spec.param.crop_param.offset) or (0,)

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        bottom, size = bottoms
        axis = canonical_axis(spec, spec.param.crop_param.axis, bottom, "crop_param", "axis")
        if len(bottom) != len(size):
            raise spec.error(f"needs bottoms with equally many axes: {show_bottoms(spec, bottoms)}", "bottom")
        axes = len(bottom) - axis
        given = tuple(spec.param.crop_param.offset)
        if len(given) not in (0, 1, axes):
            raise spec.error(
                f"offset must be given once, or once an axis from axis {axis} on ({axes} in shape {bottom}), "
                f"not {len(given)} times",
                "crop_param",
                "offset",
            )
        for position, offset in enumerate(_spread(given or (0,), axes), start=axis):
            if offset + size[position] > bottom[position]:
                room = bottom[position] - size[position]
                first, second = spec.bottom_names
                remedy = (
                    f"offset can be {room} at most there"
                    if room >= 0
                    else f'"{second}" must not be larger than "{first}" from axis {axis} on (see axis, or swap them)'
                )
                raise spec.error(
                    f"offset {offset} and size {size[position]} reach beyond axis {position}: "
                    f"{show_bottoms(spec, bottoms)}; {remedy}",
                    *(("crop_param", "offset") if given else ("bottom",)),
                )
        return LayerShapes(((*bottom[:axis], *size[axis:]),))

    @classmethod
    def mixes_samples(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> str:
        axis = canonical_axis(spec, spec.param.crop_param.axis, bottoms[0], "crop_param", "axis")
        if axis == 0 and bottoms[0][0] != bottoms[1][0]:
            return "it cuts along axis 0, the samples"
        return super().mixes_samples(spec, bottoms)

    def forward(self, *bottoms: Tensor) -> Tensor:
        x, size = bottoms
        axis = self.axis % x.dim()
        for position, offset in enumerate(_spread(self.offset, x.dim() - axis), start=axis):
            x = x.narrow(position, offset, size.shape[position])
        return x


def _spread(offset: tuple[int, ...], axes: int) -> tuple[int, ...]:
    return offset * axes if len(offset) == 1 else offset


@LAYERS.register("CropCenter")
class CropCenter(Layer):
    """The bottom without its first and last ``crop_size`` elements along each axis; one number for each axis.

    From waifu2x's Caffe, which adds the result of a convolution without padding to its input.
    """

    arity = Arity()
    within_batch = sample_independent = True
    computes = False
    family = Family.JOIN

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        self.borders = tuple(spec.param.crop_center_param.crop_size)

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        bottom, borders = bottoms[0], spec.param.crop_center_param.crop_size
        if len(borders) != len(bottom):
            raise spec.error(
                f"give a crop_size for each axis, {len(bottom)}, not {len(borders)}: {show_bottoms(spec, bottoms)}",
                *(("crop_center_param", "crop_size") if borders else ("bottom",)),
            )
        for axis, (size, border) in enumerate(zip(bottom, borders, strict=True)):
            if 2 * border >= size:
                raise spec.error(
                    f"crop_size {border} on both sides leaves nothing of axis {axis}: {show_bottoms(spec, bottoms)}",
                    "crop_center_param",
                    "crop_size",
                    axis,
                )
        return LayerShapes((tuple(size - 2 * border for size, border in zip(bottom, borders, strict=True)),))

    @classmethod
    def mixes_samples(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> str:
        if spec.param.crop_center_param.crop_size[0]:
            return "it cuts along axis 0, the samples"
        return super().mixes_samples(spec, bottoms)

    def forward(self, *bottoms: Tensor) -> Tensor:
        x = bottoms[0]
        for axis, border in enumerate(self.borders):
            if border:
                x = x.narrow(axis, border, x.shape[axis] - 2 * border)
        return x
