"""ContrastiveLoss: pulls the features of similar pairs together and pushes those of other pairs apart."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from bpt.graph.layer_spec import Arity, LayerShapes, LayerSpec, Shape, count
from bpt.nn.layers.axes import show_bottoms
from bpt.nn.layers.base import LAYERS
from bpt.nn.layers.loss import Loss
from bpt.nn.pass_context import PassContext

NEAR = 1e-4  # what Caffe adds to a distance that it divides by


@LAYERS.register("ContrastiveLoss")
class ContrastiveLoss(Loss):
    """``1 / 2N · Σ y · d² + (1 - y) · max(margin - d, 0)²``, with ``d`` the distance of a pair of features.

    Under ``legacy_version`` the second term is ``max(margin - d², 0)``. Bottoms: features ``(N, C)`` twice, and ``N``
    labels, whose integer part is 0 if the pair is dissimilar. (Hadsell et al., *Dimensionality Reduction by Learning an
    Invariant Mapping*, 2006.)
    """

    arity = Arity(bottoms=(3, 3), auto_tops=True)
    reads = frozenset()
    bottoms_without_diff = (2,)

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        first, second, labels = bottoms
        pairs = first[:1] == second[:1] and len(first) > 1 and count(first) == count(second)
        if not pairs or count(labels) != first[0]:
            raise spec.error(
                f"needs two bottoms of features (N, C) and N labels: {show_bottoms(spec, bottoms)}", "bottom"
            )
        return super().infer(spec, bottoms)

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        param = spec.param.contrastive_loss_param
        self.margin, self.legacy = param.margin, param.legacy_version

    def forward(self, *bottoms: Tensor) -> Tensor:
        apart = bottoms[0].flatten(1) - bottoms[1].flatten(1)
        alike = bottoms[2].flatten().trunc() != 0
        losses: Tensor = _Contrast.apply(apart, alike, self.margin, self.legacy)  # type: ignore[no-untyped-call]
        return losses.sum() / (2 * self.divisor(apart.shape[0]))


class _Contrast(torch.autograd.Function):
    """The term of each pair from its difference of features, with Caffe's gradient, which is not quite calculus."""

    @staticmethod
    def forward(ctx: FunctionCtx, apart: Tensor, alike: Tensor, margin: float, legacy: bool) -> Tensor:
        squares = apart.square().sum(1)
        missing = (margin - squares if legacy else margin - squares.sqrt()).clamp(min=0)
        ctx.save_for_backward(apart, alike, squares, missing)
        ctx.legacy = legacy  # type: ignore[attr-defined]
        return torch.where(alike, squares, missing if legacy else missing.square())

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, d_losses: Tensor) -> tuple[Tensor, None, None, None]:
        apart, alike, squares, missing = ctx.saved_tensors  # type: ignore[attr-defined]
        if ctx.legacy:  # type: ignore[attr-defined]
            push = (missing > 0).to(apart.dtype)
        else:
            push = missing / (squares.sqrt() + NEAR)
        factor = torch.where(alike, torch.ones_like(push), -push)
        return 2 * (d_losses * factor).unsqueeze(1) * apart, None, None, None
