"""Reduction: reduces the last axes of a blob to one number."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_spec import LayerShapes, LayerSpec, Shape, count
from bpt.nn.layers.axes import canonical_axis
from bpt.nn.layers.base import LAYERS, Family, Layer
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

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        param = spec.param.reduction_param
        self.axis, self.operation, self.coeff = param.axis, param.operation, param.coeff

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
