"""Scale: products with factors that are learned or computed."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from bpt.context import PassContext
from bpt.graph.spec import Arity, LayerShapes, LayerSpec, ParamSpec, Shape, count
from bpt.kernels import by_channel
from bpt.kernels.channels_last import is_channels_last
from bpt.layers.base import LAYERS, Family, Layer
from bpt.layers.coefficients import coefficient_shape, coefficients_mix_samples, spread
from bpt.proto import bpt_pb2 as pb

FIELD = "scale_param"


@LAYERS.register("Scale")
class Scale(Layer):
    """The first bottom times factors that stand for ``num_axes`` of its axes from ``axis`` on.

    The factors are the second bottom, or else the first blob, which starts at 1. Under ``bias_term`` a blob
    of the same shape, which starts at 0, is added. Top as the first bottom.
    """

    arity = Arity(bottoms=(1, 2))
    by_sample = True
    family = Family.NORM

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        self.axis = spec.param.scale_param.axis
        self.bias_term = spec.param.scale_param.bias_term

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        param = spec.param.scale_param
        shape = coefficient_shape(spec, bottoms, FIELD)
        params = []
        if len(bottoms) == 1:
            ones = pb.FillerParameter(type="constant", value=1)
            params.append(ParamSpec(shape, param.filler if param.HasField("filler") else ones))
        if param.bias_term:
            params.append(ParamSpec(shape, param.bias_filler))
        return LayerShapes((bottoms[0],), tuple(params))

    @classmethod
    def flops(cls, spec: LayerSpec, bottoms: Sequence[Shape], tops: Sequence[Shape]) -> int:
        return count(tops[0]) * (1 + spec.param.scale_param.bias_term)

    @classmethod
    def mixes_samples(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> str:
        return coefficients_mix_samples(spec, bottoms, FIELD, spec.param.scale_param.bias_term)

    def forward(self, *bottoms: Tensor) -> Tensor:
        x = bottoms[0]
        factors = bottoms[1] if len(bottoms) == 2 else self.blob(0)
        if not self.bias_term:
            return x * spread(factors, x, self.axis)
        summands = self.blob(len(self.blobs) - 1)
        if factors.dim() == 1 and self.axis % x.dim() == 1 and factors.shape[0]:  # torch's kernel wants a channel
            return scale_channels(x, factors, summands)
        return x * spread(factors, x, self.axis) + spread(summands, x, self.axis)


def scale_channels(x: Tensor, factors: Tensor, summands: Tensor) -> Tensor:
    """``factors · x + summands`` by channel, as batch normalisation by mean 0 and variance 1: in one pass each way."""
    if by_channel.applies(x) and is_channels_last(x):
        return by_channel.scale(x, factors, summands)
    mean, variance = torch.zeros_like(factors), torch.ones_like(factors)
    return torch.batch_norm(x, factors, summands, mean, variance, False, 0, 0, torch.backends.cudnn.enabled)
