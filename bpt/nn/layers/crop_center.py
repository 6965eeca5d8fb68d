"""CropCenter: cuts the borders of a blob."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from bpt.graph.layer_spec import Arity, LayerShapes, LayerSpec, Shape
from bpt.nn.layers.axes import show_bottoms
from bpt.nn.layers.base import LAYERS, Family, Layer
from bpt.nn.pass_context import PassContext

FIELD = "crop_center_param"


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
                *((FIELD, "crop_size") if borders else ("bottom",)),
            )
        for axis, (size, border) in enumerate(zip(bottom, borders, strict=True)):
            if 2 * border >= size:
                raise spec.error(
                    f"crop_size {border} on both sides leaves nothing of axis {axis}: {show_bottoms(spec, bottoms)}",
                    FIELD,
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
