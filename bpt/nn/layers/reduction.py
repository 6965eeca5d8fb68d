"""Reduction and ArgMax: reduce axes to one number, or to their largest elements."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_spec import LayerShapes, LayerSpec, Shape, count
from bpt.nn.layers.axes import canonical_axis, show_bottoms
from bpt.nn.layers.base import ALL_BOTTOMS, LAYERS, Family, Layer, setting
from bpt.nn.layers.loss import at_least_1
from bpt.nn.pass_context import PassContext

SUM = pb.ReductionParameter.SUM
ASUM = pb.ReductionParameter.ASUM
SUMSQ = pb.ReductionParameter.SUMSQ
MEAN = pb.ReductionParameter.MEAN


@LAYERS.register("Reduction")
class Reduction(Layer):
    """``coeff`` (default 1) times a reduction of all elements from ``axis`` (default 0) on.

    ``operation`` is SUM (the default); ASUM, the sum of absolute values, with gradient 0 at 0; SUMSQ, the sum of
    squares; or MEAN. The top has the axes before ``axis``, so none for axis 0. In that case, with many ranks, the top
    and the diffs of a rank are its summands of the whole batch's.
    """

    sample_independent = True
    family = Family.JOIN
    axis = setting(int, "reduction_param.axis")
    operation = setting(int, "reduction_param.operation")
    coeff = setting(float, "reduction_param.coeff")

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        return LayerShapes((bottoms[0][: _axis(spec, bottoms[0])],))

    @classmethod
    def flops(cls, spec: LayerSpec, bottoms: Sequence[Shape], tops: Sequence[Shape]) -> int:
        operations = 2 if spec.param.reduction_param.operation in (ASUM, SUMSQ) else 1
        return operations * count(bottoms[0])

    def forward(self, *bottoms: Tensor) -> Tensor:
        x = bottoms[0]
        axis = self.axis % x.dim()
        if self.operation == ASUM:
            x = x.abs()
        elif self.operation == SUMSQ:
            x = x.square()
        total = x.sum(tuple(range(axis, x.dim())))
        if self.operation == MEAN:
            total = total / at_least_1(count(x.shape[axis:]) if axis else self.of_whole_batch(x.numel()))
        return total if self.coeff == 1 else total * self.coeff


def _axis(spec: LayerSpec, bottom: Shape) -> int:
    return canonical_axis(spec, spec.param.reduction_param.axis, bottom, "reduction_param", "axis")


FIELD = "argmax_param"


@LAYERS.register("ArgMax")
class ArgMax(Layer):
    """The ``top_k`` (default 1) largest elements, the largest first; of equal ones that of the larger index.

    With ``axis`` (a negative one counts from the last) they are taken along it. The top has the bottom's shape, with
    ``top_k`` on that axis, and holds the indices, or under ``out_max_val`` the values. Without ``axis`` they are taken
    of each sample, flattened. The top is ``(N, 1, top_k)`` with indices, or under ``out_max_val`` ``(N, 2, top_k)``
    with indices, then values. It has as many axes as the bottom, filled with 1. The layer never runs backward: the
    bottom gets no diff.
    """

    within_batch = sample_independent = True
    family = Family.LOSS
    flops_per_bottom = 1
    bottoms_without_diff = ALL_BOTTOMS

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        param = spec.param.argmax_param
        self.axis = param.axis if param.HasField("axis") else None
        self.top_k, self.out_max_val = param.top_k, param.out_max_val

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        param, shape = spec.param.argmax_param, bottoms[0]
        if not shape:
            raise spec.error("needs a bottom of at least 1 axis, not a scalar", "bottom")
        axis = canonical_axis(spec, param.axis, shape, FIELD, "axis") if param.HasField("axis") else None
        elements = count(shape[1:]) if axis is None else shape[axis]
        if not 1 <= param.top_k <= elements:
            where = "each sample" if axis is None else f"axis {axis}"
            raise spec.error(
                f"top_k {param.top_k} is outside [1, {elements}], the elements of {where} of bottom "
                f"{show_bottoms(spec, bottoms)}",
                FIELD,
                "top_k",
            )
        if axis is None:
            return LayerShapes(((shape[0], 1 + param.out_max_val, param.top_k, *(1,) * (len(shape) - 3)),))
        return LayerShapes(((*shape[:axis], param.top_k, *shape[axis + 1 :]),))

    @classmethod
    def mixes_samples(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> str:
        param = spec.param.argmax_param
        if param.HasField("axis") and canonical_axis(spec, param.axis, bottoms[0], FIELD, "axis") == 0:
            return "it searches along axis 0, the samples"
        return super().mixes_samples(spec, bottoms)

    @torch.no_grad()
    def forward(self, *bottoms: Tensor) -> Tensor:
        x = bottoms[0]
        if self.axis is not None:
            indices, values = _largest(x, self.axis, self.top_k)
            return values if self.out_max_val else indices.to(x.dtype)
        samples = x.flatten(1) if x.dim() > 1 else x.unsqueeze(1)
        indices, values = _largest(samples, 1, self.top_k)
        found = indices.to(x.dtype)
        top = torch.stack([found, values], 1) if self.out_max_val else found.unsqueeze(1)
        return top.reshape(*top.shape, *(1,) * (x.dim() - 3))


def _largest(x: Tensor, axis: int, number: int) -> tuple[Tensor, Tensor]:
    """Return indices and values of this number of largest elements along ``axis``."""
    # torch finds the first of equal elements, Caffe the last.
    turned = x.flip(axis)
    if number == 1:
        values, places = turned.max(axis, keepdim=True)
    else:
        values, places = turned.sort(dim=axis, descending=True, stable=True)
        values, places = values.narrow(axis, 0, number), places.narrow(axis, 0, number)
    return x.shape[axis] - 1 - places, values
