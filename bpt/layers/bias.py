"""Bias: sums with summands that are learned or computed."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from bpt.context import PassContext
from bpt.graph.spec import Arity, LayerShapes, LayerSpec, ParamSpec, Shape
from bpt.layers.base import LAYERS, Family, Layer
from bpt.layers.coefficients import coefficient_shape, coefficients_mix_samples, spread


@LAYERS.register("Bias")
class Bias(Layer):
    """The first bottom plus summands that stand for ``num_axes`` of its axes from ``axis`` on.

    The summands are the second bottom, or else the only blob, which starts at 0. Top as the first bottom.
    """

    arity = Arity(bottoms=(1, 2))
    by_sample = True
    family = Family.NORM

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        self.axis = spec.param.bias_param.axis

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        shape = coefficient_shape(spec, bottoms, "bias_param")
        params = (ParamSpec(shape, spec.param.bias_param.filler),) if len(bottoms) == 1 else ()
        return LayerShapes((bottoms[0],), params)

    @classmethod
    def mixes_samples(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> str:
        return coefficients_mix_samples(spec, bottoms, "bias_param")

    def forward(self, *bottoms: Tensor) -> Tensor:
        summands = bottoms[1] if len(bottoms) == 2 else self.blob(0)
        return bottoms[0] + spread(summands, bottoms[0], self.axis)
