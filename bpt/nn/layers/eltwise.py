"""Eltwise and Axpy: combine blobs element by element."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import mul
from typing import Any

import torch
from torch import Tensor

from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_spec import Arity, Autocast, LayerShapes, LayerSpec, Shape, count
from bpt.nn.layers.axes import show_bottoms
from bpt.nn.layers.base import LAYERS, Family, Layer
from bpt.nn.pass_context import PassContext

PROD = pb.EltwiseParameter.PROD
SUM = pb.EltwiseParameter.SUM
MAX = pb.EltwiseParameter.MAX


@LAYERS.register("Eltwise")
class Eltwise(Layer):
    """The sum (the default; each bottom times its ``coeff``), the product or the maximum, by ``operation``.

    Of equal elements MAX prefers the second bottom to the first, and any other to those after it. Its diff goes to that
    bottom alone. ``stable_prod_grad: false`` computes PROD's diff as top / bottom, which is NaN where the bottom is 0,
    as in Caffe.
    """

    numbers = Autocast.WIDEST
    arity = Arity(bottoms=(2, None))
    sample_independent = True
    family = Family.JOIN

    @classmethod
    def in_words(cls, layer: pb.LayerParameter, axes: int) -> Sequence[str]:
        return (pb.EltwiseParameter.EltwiseOp.Name(layer.eltwise_param.operation),)

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        param = spec.param.eltwise_param
        if param.coeff and param.operation != SUM:
            raise spec.error("coeff goes with operation: SUM only", "eltwise_param", "coeff")
        if len(param.coeff) not in (0, len(bottoms)):
            raise spec.error(
                f"needs one coeff for each bottom ({len(bottoms)}), not {len(param.coeff)}", "eltwise_param", "coeff"
            )
        for index, shape in enumerate(bottoms):
            if shape != bottoms[0]:
                raise spec.error(f"bottoms must have one shape: {show_bottoms(spec, bottoms)}", "bottom", index)
        return LayerShapes((bottoms[0],))

    @classmethod
    def flops(cls, spec: LayerSpec, bottoms: Sequence[Shape], tops: Sequence[Shape]) -> int:
        scaled = len(spec.param.eltwise_param.coeff)
        return (len(bottoms) - 1 + scaled) * count(tops[0])

    @classmethod
    def saved_for_backward(cls, spec: LayerSpec) -> float:
        return 0.0 if spec.param.eltwise_param.operation == SUM else 1.0

    @classmethod
    def reread(cls, spec: LayerSpec, bottoms: Sequence[Shape], tops: Sequence[Shape]) -> int:
        return 0 if spec.param.eltwise_param.operation == SUM else super().reread(spec, bottoms, tops)

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        param = spec.param.eltwise_param
        self.operation = param.operation
        self.coeffs = list(param.coeff) or [1.0] * len(spec.bottoms)
        self.stable_prod_grad = param.stable_prod_grad
        self.top_is_free = self.operation != PROD
        self.overwrites = tuple(range(len(spec.bottoms))) if self.operation == SUM else ()

    def forward(self, *bottoms: Tensor) -> Tensor:
        if self.operation == MAX:
            return reduce(_larger, bottoms[2:], _larger(bottoms[1], bottoms[0]))
        if self.operation == SUM:
            return _weighted_sum(bottoms, self.coeffs)
        if self.stable_prod_grad or not any(bottom.requires_grad for bottom in bottoms):
            return reduce(mul, bottoms)
        return _DividedProduct.apply(*bottoms)  # type: ignore[no-any-return, no-untyped-call]

    def overwrite(self, place: int, *bottoms: Tensor) -> Tensor:
        total = bottoms[place] if self.coeffs[place] == 1 else bottoms[place].mul_(self.coeffs[place])
        for index, (bottom, coeff) in enumerate(zip(bottoms, self.coeffs, strict=True)):
            if index != place:
                total.add_(bottom, alpha=coeff)
        return total


def _larger(kept: Tensor, other: Tensor) -> Tensor:
    """Return ``other`` where it is strictly larger than ``kept``, else ``kept``."""
    return torch.where(other > kept, other, kept)


def _weighted_sum(bottoms: Sequence[Tensor], coeffs: Sequence[float]) -> Tensor:
    total = bottoms[0] if coeffs[0] == 1 else bottoms[0] * coeffs[0]
    for bottom, coeff in zip(bottoms[1:], coeffs[1:], strict=True):
        total = total.add(bottom, alpha=coeff)
    return total


class _DividedProduct(torch.autograd.Function):
    """A product whose diffs are the top divided by the bottom (Caffe: ``stable_prod_grad: false``)."""

    @staticmethod
    def forward(ctx: Any, *factors: Tensor) -> Tensor:
        top = reduce(mul, factors)
        ctx.save_for_backward(top, *factors)
        return top

    @staticmethod
    def backward(ctx: Any, diff: Tensor) -> tuple[Tensor | None, ...]:
        top, *factors = ctx.saved_tensors
        return tuple(
            top / factor * diff if wanted else None
            for factor, wanted in zip(factors, ctx.needs_input_grad, strict=True)
        )


@LAYERS.register("Axpy")
class Axpy(Layer):
    """``a · x + y``: the end of a block of SENet (Hu et al., *Squeeze-and-Excitation Networks*, 2018).

    Bottoms ``a`` ``(N, channels)``, or with axes of 1 at the end; ``x`` and ``y`` ``(N, channels, …)``. Top as ``x``.
    """

    numbers = Autocast.WIDEST
    arity = Arity(bottoms=(3, 3))
    sample_independent = True
    family = Family.JOIN
    flops_per_top = 2

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        factors, x, y = bottoms
        if len(x) < 2 or x != y or factors[:2] != x[:2] or count(factors[2:]) != 1:
            raise spec.error(
                "needs factors (N, channels) and two blobs of one shape (N, channels, …): "
                f"{show_bottoms(spec, bottoms)}",
                "bottom",
            )
        return LayerShapes((x,))

    def forward(self, *bottoms: Tensor) -> Tensor:
        factors, x, y = bottoms
        return torch.addcmul(y, factors.reshape(*x.shape[:2], *(1,) * (x.dim() - 2)), x)
