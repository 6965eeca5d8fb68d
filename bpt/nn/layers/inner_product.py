"""InnerProduct: a fully connected layer."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from bpt.config.precision import narrowed
from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_spec import LayerShapes, LayerSpec, ParamSpec, Shape, count
from bpt.nn.kernels.linear import linear
from bpt.nn.kernels.packed import PackedProduct, pack_product
from bpt.nn.layers.axes import canonical_axis
from bpt.nn.layers.base import LAYERS, Family, Layer
from bpt.nn.layers.channel_affine import Weights
from bpt.nn.pass_context import PassContext

FIELD = "inner_product_param"


@LAYERS.register("InnerProduct")
class InnerProduct(Layer):
    """``num_output`` weighted sums of the axes from ``axis`` on, which are flattened.

    Bottom ``(outer …, inner …)``, top ``(outer …, num_output)``. Blobs: weights ``(num_output, inputs)``, or ``(inputs,
    num_output)`` under ``transpose``; and ``(num_output,)`` if ``bias_term``.
    """

    sample_independent = multiplies = top_is_free = True
    bias_blob = 1
    family = Family.CONNECTED

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        param = spec.param.inner_product_param
        self.axis = param.axis
        self.transpose = param.transpose
        self.bias_term = param.bias_term

    @classmethod
    def in_words(cls, layer: pb.LayerParameter, axes: int) -> Sequence[str]:
        return (str(layer.inner_product_param.num_output),)

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        param = spec.param.inner_product_param
        bottom = bottoms[0]
        if not param.num_output:
            raise spec.error("needs num_output, at least 1", FIELD, "num_output")
        axis = canonical_axis(spec, param.axis, bottom, FIELD, "axis")
        inputs = count(bottom[axis:])
        weight = (inputs, param.num_output) if param.transpose else (param.num_output, inputs)
        params = [ParamSpec(weight, param.weight_filler)]
        if param.bias_term:
            params.append(ParamSpec((param.num_output,), param.bias_filler))
        return LayerShapes(((*bottom[:axis], param.num_output),), tuple(params))

    @classmethod
    def flops(cls, spec: LayerSpec, bottoms: Sequence[Shape], tops: Sequence[Shape]) -> int:
        param = spec.param.inner_product_param
        return 2 * count(bottoms[0]) * param.num_output + count(tops[0]) * param.bias_term

    @classmethod
    def mixes_samples(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> str:
        axis = canonical_axis(spec, spec.param.inner_product_param.axis, bottoms[0], FIELD, "axis")
        return "" if axis else "it adds up along axis 0, the samples"

    def forward(self, *bottoms: Tensor) -> Tensor:
        return self.forward_by(self.weights_for(bottoms[0]), bottoms[0])

    def forward_by(self, weights: Weights, bottom: Tensor) -> Tensor:
        weight, bias = weights
        assert weight is not None
        return linear(bottom.flatten(self.axis), weight, bias)

    def packed(self, weights: Weights, bottom: Tensor) -> PackedProduct | None:
        """Return a faster ``forward_by`` these weights for flattened bottoms like this one; ``None`` if none exists."""
        weight, bias = weights
        assert weight is not None
        return pack_product(bottom, weight, bias)

    def weights_for(self, bottom: Tensor) -> Weights:
        """Return the weights ``(num_output, inputs)`` and any bias, in the number type of bottoms like this one."""
        weight, *bias = (narrowed(self.blob(index), bottom) for index in range(1 + self.bias_term))
        return weight.t() if self.transpose else weight, bias[0] if bias else None
