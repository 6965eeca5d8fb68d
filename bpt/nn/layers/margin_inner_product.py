"""MarginInnerProduct: scores of classes, with an angular margin for the right class (SphereFace)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

from bpt.graph.layer_spec import Arity, LayerShapes, LayerSpec, ParamSpec, Shape, count
from bpt.nn.layers.axes import canonical_axis, show_bottoms
from bpt.nn.layers.base import LAYERS, Family, Layer
from bpt.nn.layers.labels import row_indices
from bpt.nn.pass_context import PassContext

FIELD = "margin_inner_product_param"
_LEAST = 1e-30  # of a length that is divided by


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
            raise spec.error("needs num_output, the number of classes, at least 1", FIELD, "num_output")
        axis = canonical_axis(spec, param.axis, bottoms[0], FIELD, "axis")
        if axis != 1 or count(bottoms[1]) != bottoms[0][0] or bottoms[1][:1] != bottoms[0][:1]:
            raise spec.error(f"needs features (N, …) and N labels: {show_bottoms(spec, bottoms)}", "bottom")
        if param.base < 0 or param.gamma < 0 or param.lambda_min < 0 or param.iteration < 0:
            raise spec.error("base, gamma, lambda_min and iteration must not be negative", FIELD)
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
        share = self.share_of(bottoms[0])  # ranks and micro-batches add up
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
