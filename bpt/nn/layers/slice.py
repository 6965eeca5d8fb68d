"""Slice: cuts a bottom into several tops along an axis."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor

from bpt.graph.layer_spec import Arity, LayerShapes, LayerSpec, Shape
from bpt.nn.layers.axes import axis_or_dim, show_bottoms
from bpt.nn.layers.base import LAYERS, Family, Layer
from bpt.nn.pass_context import PassContext


@LAYERS.register("Slice")
class Slice(Layer):
    """Parts of the bottom along ``axis`` (default 1; once ``slice_dim``), cut at each ``slice_point`` or equally."""

    arity = Arity(tops=(1, None))
    within_batch = sample_independent = True
    computes = False
    family = Family.JOIN

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        axis = axis_or_dim(spec, bottoms[0], "slice_param", "slice_dim")
        _check_points(spec, bottoms[0], axis)
        borders = _borders(bottoms[0][axis], spec.param.slice_param.slice_point, len(spec.tops))
        before, after = bottoms[0][:axis], bottoms[0][axis + 1 :]
        return LayerShapes(tuple((*before, end - start, *after) for start, end in pairwise(borders)))

    @classmethod
    def mixes_samples(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> str:
        axis = axis_or_dim(spec, bottoms[0], "slice_param", "slice_dim")
        along_samples = "it cuts along axis 0, the samples" if axis == 0 and len(spec.tops) > 1 else ""
        return along_samples or super().mixes_samples(spec, bottoms)

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        param = spec.param.slice_param
        self.axis = param.slice_dim if param.HasField("slice_dim") else param.axis
        self.points = list(param.slice_point)
        self.parts = len(spec.tops)

    def forward(self, *bottoms: Tensor) -> tuple[Tensor, ...]:
        x = bottoms[0]
        borders = _borders(x.shape[self.axis], self.points, self.parts)
        # Not torch.split, whose parts an in-place layer may not change.
        return tuple(x.narrow(self.axis, start, end - start) for start, end in pairwise(borders))


def _borders(extent: int, points: Sequence[int], parts: int) -> list[int]:
    """Return the borders of the parts: one number more than parts."""
    return [0, *(points or [extent // parts * part for part in range(1, parts)]), extent]


def _check_points(spec: LayerSpec, shape: Shape, axis: int) -> None:
    """Raise a LayerError unless ``axis`` of a bottom of ``shape`` can be cut as the text says."""
    points = list(spec.param.slice_param.slice_point)
    tops, extent = len(spec.tops), shape[axis]
    if not points and extent % tops:
        raise spec.error(
            f"{tops} tops cannot share axis {axis} of bottom {show_bottoms(spec, [shape])} equally; give slice_points",
            "slice_param",
        )
    if points and len(points) != tops - 1:
        raise spec.error(
            f"needs one slice_point fewer than tops ({tops - 1}), not {len(points)}", "slice_param", "slice_point"
        )
    if points and any(start >= end for start, end in pairwise([0, *points, extent])):
        raise spec.error(
            f"slice_points {points} must ascend between 0 and {extent}, axis {axis} of bottom "
            f"{show_bottoms(spec, [shape])}",
            "slice_param",
            "slice_point",
        )
