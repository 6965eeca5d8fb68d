"""InnerProduct, Embed and MarginInnerProduct: fully connected layers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx
from torch.nn import functional

from bpt.config.precision import narrowed
from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_spec import Arity, LayerShapes, LayerSpec, ParamSpec, Shape, count
from bpt.nn.kernels.algorithm import Kernels
from bpt.nn.kernels.linear import linear, linear_kernels
from bpt.nn.kernels.packed import PackedProduct, pack_product
from bpt.nn.layers.axes import canonical_axis, show_bottoms
from bpt.nn.layers.base import ALL_BOTTOMS, LAYERS, Family, Layer, setting
from bpt.nn.layers.channel_affine import Weights
from bpt.nn.layers.labels import row_indices
from bpt.nn.pass_context import PassContext


@LAYERS.register("InnerProduct")
class InnerProduct(Layer):
    """``num_output`` weighted sums of the axes from ``axis`` on, which are flattened.

    Bottom ``(outer …, inner …)``, top ``(outer …, num_output)``. Blobs: weights ``(num_output, inputs)``, or ``(inputs,
    num_output)`` under ``transpose``; and ``(num_output,)`` if ``bias_term``.
    """

    sample_independent = multiplies = top_is_free = chooses_kernels = True
    bias_blob = 1
    settings = "inner_product_param"
    family = Family.CONNECTED
    axis = setting(int, "inner_product_param.axis")
    transpose = setting(bool, "inner_product_param.transpose")
    bias_term = setting(bool, "inner_product_param.bias_term")

    @classmethod
    def in_words(cls, layer: pb.LayerParameter, axes: int) -> Sequence[str]:
        return (str(layer.inner_product_param.num_output),)

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        param = spec.param.inner_product_param
        bottom = bottoms[0]
        if not param.num_output:
            raise spec.error("needs num_output, at least 1", "inner_product_param", "num_output")
        axis = canonical_axis(spec, param.axis, bottom, "inner_product_param", "axis")
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
        axis = canonical_axis(spec, spec.param.inner_product_param.axis, bottoms[0], "inner_product_param", "axis")
        return "" if axis else "it adds up along axis 0, the samples"

    def forward(self, *bottoms: Tensor) -> Tensor:
        weights, product = self.weights_for(bottoms[0]), self.context.product
        if product is None:
            return self.forward_by(weights, bottoms[0])
        assert weights[0] is not None
        return product.linear(bottoms[0].flatten(self.axis), weights[0], weights[1])

    def forward_by(self, weights: Weights, bottom: Tensor) -> Tensor:
        weight, bias = weights
        assert weight is not None
        return linear(bottom.flatten(self.axis), weight, bias, self.algorithms)

    def kernels(self, bottom: Tensor) -> Kernels:
        weight, bias = self.weights_for(bottom)
        assert weight is not None
        return linear_kernels(bottom.flatten(self.axis), weight.detach(), None if bias is None else bias.detach())

    def packed(self, weights: Weights, bottom: Tensor) -> PackedProduct | None:
        """Return a faster ``forward_by`` these weights for flattened bottoms like this one; ``None`` if none exists."""
        weight, bias = weights
        assert weight is not None
        return pack_product(bottom, weight, bias)

    def weights_for(self, bottom: Tensor) -> Weights:
        """Return the weights ``(num_output, inputs)`` and any bias, in the number type of bottoms like this one."""
        weight, *bias = (narrowed(self.blob(index), bottom) for index in range(1 + self.bias_term))
        return weight.t() if self.transpose else weight, bias[0] if bias else None


@LAYERS.register("Embed")
class Embed(Layer):
    """The row for each index of a table of ``input_dim`` rows and ``num_output`` columns, plus a bias.

    It equals an InnerProduct on vectors that are 1 at the index and 0 elsewhere, without making them. Bottom: indices
    of any shape, which get no diff; fractions are truncated. Top: that shape and ``num_output``. Blobs: the table
    ``(input_dim, num_output)``, and ``(num_output,)`` if ``bias_term``.

    Raises:
        DataError: in ``forward``, for an index outside [0, ``input_dim``). Caffe reads out of bounds.
    """

    no_collectives = True
    family = Family.CONNECTED
    bottoms_without_diff = ALL_BOTTOMS
    rows = setting(int, "embed_param.input_dim")
    bias_term = setting(bool, "embed_param.bias_term")

    @classmethod
    def in_words(cls, layer: pb.LayerParameter, axes: int) -> Sequence[str]:
        return (f"{layer.embed_param.input_dim} → {layer.embed_param.num_output}",)

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        param = spec.param.embed_param
        for field in ("num_output", "input_dim"):
            if not getattr(param, field):
                raise spec.error(f"needs {field}, at least 1", "embed_param", field)
        params = [ParamSpec((param.input_dim, param.num_output), param.weight_filler)]
        if param.bias_term:
            params.append(ParamSpec((param.num_output,), param.bias_filler))
        return LayerShapes(((*bottoms[0], param.num_output),), tuple(params))

    @classmethod
    def flops(cls, spec: LayerSpec, bottoms: Sequence[Shape], tops: Sequence[Shape]) -> int:
        return count(tops[0]) * spec.param.embed_param.bias_term

    def forward(self, *bottoms: Tensor) -> Tensor:
        indices = row_indices(self.spec, bottoms[0], 0, self.rows, "the rows of its table (embed_param { input_dim })")
        top = functional.embedding(indices, self.blob(0))
        return top + self.blob(1) if self.bias_term else top


_LEAST = 1e-30  # lower limit of a length as a divisor


@LAYERS.register("MarginInnerProduct")
class MarginInnerProduct(Layer):
    """``x · w`` for each class, but ``(|x| ψ(θ) + λ x · w) / (1 + λ)`` for the label's; each ``w`` has length 1.

    ``θ`` is the angle between ``x`` and the label's ``w``. ``ψ(θ) = (-1)^k cos(m θ) - 2 k`` in the k-th of m parts of
    the half circle; ``type`` gives m, 1 to 4. ``λ = max(base (1 + gamma t)^-power, lambda_min)``, where t is
    ``iteration`` + 1 in the first iteration of training, and grows by 1. Bottoms: features, flattened from ``axis`` (1)
    on, and N labels. A second top is λ. Blob: ``(num_output, features)``, scaled to length 1 in each training pass. Its
    gradient is that of a ``w`` of any length, as in the fork. (Liu et al., *SphereFace*, 2017, eq. 7.)
    """

    arity = Arity(bottoms=(2, 2), tops=(1, 2))
    multiplies = True
    family = Family.CONNECTED
    bottoms_without_diff = (1, -1)

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        self.param = spec.param.margin_inner_product_param
        self.parts = self.param.type + 1

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        param = spec.param.margin_inner_product_param
        if not param.num_output:
            raise spec.error(
                "needs num_output, the number of classes, at least 1", "margin_inner_product_param", "num_output"
            )
        axis = canonical_axis(spec, param.axis, bottoms[0], "margin_inner_product_param", "axis")
        if axis != 1 or count(bottoms[1]) != bottoms[0][0] or bottoms[1][:1] != bottoms[0][:1]:
            raise spec.error(f"needs features (N, …) and N labels: {show_bottoms(spec, bottoms)}", "bottom")
        if param.base < 0 or param.gamma < 0 or param.lambda_min < 0 or param.iteration < 0:
            raise spec.error("base, gamma, lambda_min and iteration must not be negative", "margin_inner_product_param")
        weights = ParamSpec((param.num_output, count(bottoms[0][1:])), param.weight_filler)
        return LayerShapes(((bottoms[0][0], param.num_output), ())[: len(spec.tops)], (weights,))

    @classmethod
    def flops(cls, spec: LayerSpec, bottoms: Sequence[Shape], tops: Sequence[Shape]) -> int:
        return 2 * count(bottoms[0]) * spec.param.margin_inner_product_param.num_output

    @property
    def plain_part(self) -> float:
        """λ of this iteration."""
        param = self.param
        step = param.iteration + self.context.iteration + 1
        return float(max(param.base * (1 + param.gamma * step) ** -param.power, param.lambda_min))

    def forward(self, *bottoms: Tensor) -> Tensor | tuple[Tensor, ...]:
        weight = self.blob(0)
        if self.training:
            with torch.no_grad():
                weight.div_(_lengths(weight))
        features, plain = bottoms[0].flatten(1), self.plain_part
        units: Tensor = _Units.apply(weight)  # type: ignore[no-untyped-call]
        scores = features @ units.to(features.dtype).t()
        labels = row_indices(self.spec, bottoms[1].flatten(), 1, len(weight), "its classes").unsqueeze(1)
        length = _lengths(features)
        cosine = scores.gather(1, labels) / length
        own = (length * margin_of(cosine, self.parts) + plain * scores.gather(1, labels)) / (1 + plain)
        top = scores.scatter(1, labels, own.to(scores.dtype))
        if len(self.spec.tops) == 1:
            return top
        share = self.share_of(bottoms[0])  # the values of ranks and micro-batches add up
        return top, top.new_tensor(plain * share.count / max(share.total, 1))


def margin_of(cosine: Tensor, parts: int) -> Tensor:
    """Return ``(-1)^k cos(parts · θ) - 2 k`` from the cosine of θ.

    k is the number of ends of the ``parts`` of the half circle that are below θ.
    """
    multiple, before = cosine, torch.ones_like(cosine)  # Chebyshev's polynomials: cos(n θ)
    for _ in range(parts - 1):
        multiple, before = 2 * cosine * multiple - before, multiple
    ends = [math.cos(math.pi * part / parts) for part in range(1, parts)]
    passed = sum(((cosine < end).to(cosine.dtype) for end in ends), torch.zeros_like(cosine))
    return (1 - 2 * (passed % 2)) * multiple - 2 * passed


def _lengths(rows: Tensor) -> Tensor:
    return rows.square().sum(1, keepdim=True).sqrt().clamp(min=_LEAST)


class _Units(torch.autograd.Function):
    """Rows scaled to length 1, whose diff is passed unchanged to the rows themselves."""

    @staticmethod
    def forward(ctx: FunctionCtx, weight: Tensor) -> Tensor:
        return weight / _lengths(weight)

    @staticmethod
    def backward(ctx: FunctionCtx, diff: Tensor) -> Tensor:
        return diff


@LAYERS.register("MpiFc")
class MpiFcLayer(InnerProduct):
    """An InnerProduct whose outputs are divided over the ranks of a replica (MPI-FC, section 3.2: ``MpiFcLayer``).

    It computes the outputs that this rank holds. Which these are, ``bpt.parallel.model_parallel`` says; the blobs go
    from rank to rank by an ``MpiFcOperator``. Unlike an InnerProduct it is divided unless its text says otherwise,
    also along another axis than 1, which is refused.
    """
