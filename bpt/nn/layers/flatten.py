"""Flatten: joins several axes of a blob to one."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from bpt.graph.layer_spec import LayerShapes, LayerSpec, Shape, count
from bpt.nn.layers.axes import canonical_axis, show_bottoms
from bpt.nn.layers.base import LAYERS, Family, Layer
from bpt.nn.pass_context import PassContext


@LAYERS.register("Flatten")
class Flatten(Layer):
    """The bottom with the axes from ``axis`` (default 1) to ``end_axis`` (default the last), both included, joined."""

    within_batch = sample_independent = is_view = True
    computes = False
    family = Family.JOIN

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        param, shape = spec.param.flatten_param, bottoms[0]
        first = canonical_axis(spec, param.axis, shape, "flatten_param", "axis")
        last = canonical_axis(spec, param.end_axis, shape, "flatten_param", "end_axis")
        if last < first:
            raise spec.error(
                f"end_axis {param.end_axis} stands before axis {param.axis} of bottom {show_bottoms(spec, bottoms)}",
                "flatten_param",
                "end_axis",
            )
        return LayerShapes(((*shape[:first], count(shape[first : last + 1]), *shape[last + 1 :]),))

    @classmethod
    def mixes_samples(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> str:
        param, shape = spec.param.flatten_param, bottoms[0]
        first = canonical_axis(spec, param.axis, shape, "flatten_param", "axis")
        last = canonical_axis(spec, param.end_axis, shape, "flatten_param", "end_axis")
        return "it makes one axis of the samples (axis 0) and others" if first == 0 < last else ""

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        self.axis = spec.param.flatten_param.axis
        self.end_axis = spec.param.flatten_param.end_axis

    def forward(self, *bottoms: Tensor) -> Tensor:
        return bottoms[0].flatten(self.axis, self.end_axis)
