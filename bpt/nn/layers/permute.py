"""Permute and Transpose: reorder the axes of a blob."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from bpt.graph.layer_spec import LayerShapes, LayerSpec, Shape
from bpt.nn.layers.axes import show_bottoms
from bpt.nn.layers.base import LAYERS, Family, Layer
from bpt.nn.pass_context import PassContext

FIELD = "permute_param"


@LAYERS.register("Permute")
class Permute(Layer):
    """The bottom with axis ``order[i]`` as axis ``i``; axes that are not named follow in their order.

    From SSD's Caffe (Liu et al., *SSD: Single Shot MultiBox Detector*, 2016).
    """

    within_batch = sample_independent = True
    computes = False
    family = Family.JOIN

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        self.order = tuple(self._order(spec))

    @classmethod
    def _order(cls, spec: LayerSpec) -> Sequence[int]:
        return spec.param.permute_param.order

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        order, shape = spec.param.permute_param.order, bottoms[0]
        for index, axis in enumerate(order):
            if axis >= len(shape):
                raise spec.error(
                    f"order {axis} is outside [0, {len(shape)}), the axes of bottom {show_bottoms(spec, bottoms)}",
                    FIELD,
                    "order",
                    index,
                )
            if axis in order[:index]:
                raise spec.error(f"order names axis {axis} twice", FIELD, "order", index)
        return LayerShapes((tuple(shape[axis] for axis in _all_axes(order, len(shape))),))

    @classmethod
    def mixes_samples(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> str:
        moved = cls._order(spec)[:1] not in ([], [0])
        return "it moves axis 0, the samples" if moved else super().mixes_samples(spec, bottoms)

    def forward(self, *bottoms: Tensor) -> Tensor:
        # Laid out in the top's order: what follows is mostly Flatten or Reshape, which would have to copy instead.
        return bottoms[0].permute(_all_axes(self.order, bottoms[0].dim())).contiguous()


@LAYERS.register("Transpose")
class Transpose(Permute):
    """The bottom with axis ``dim[i]`` as axis ``i``; ``transpose_param`` names each axis once."""

    @classmethod
    def _order(cls, spec: LayerSpec) -> Sequence[int]:
        return spec.param.transpose_param.dim

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        order, shape = cls._order(spec), bottoms[0]
        if sorted(order) != list(range(len(shape))):
            raise spec.error(
                f"needs each of the {len(shape)} axes once as dim: {show_bottoms(spec, bottoms)}", "transpose_param"
            )
        return LayerShapes((tuple(shape[axis] for axis in order),))


def _all_axes(order: Sequence[int], axes: int) -> tuple[int, ...]:
    return (*order, *(axis for axis in range(axes) if axis not in order))
