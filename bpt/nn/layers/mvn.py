"""MVN: mean and variance normalisation of each channel of each sample."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from bpt.graph.layer_spec import LayerShapes, LayerSpec, Shape, count
from bpt.nn.layers.base import LAYERS, Family, Layer
from bpt.nn.pass_context import PassContext


@LAYERS.register("MVN")
class MVN(Layer):
    """``(x - mean) / (deviation + eps)``, with mean and standard deviation (biased) of each channel of each sample.

    Bottom ``(N, channels, …)``. The top has the bottom's shape, extended to 4 axes where that has fewer (Caffe's legacy
    shape). ``across_channels``: one mean and deviation for a whole sample. ``normalize_variance: false``: ``x - mean``.
    ``eps``, default 1e-9, is added to the deviation. As in Caffe, the diff uses the deviation for ``deviation + eps``
    everywhere, which is not quite calculus.
    """

    sample_independent = True
    family = Family.NORM

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        param = spec.param.mvn_param
        self.across_channels, self.eps = param.across_channels, param.eps
        self.normalize_variance = param.normalize_variance

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        if not bottoms[0]:
            raise spec.error("needs a bottom of at least 1 axis, not a scalar", "bottom")
        return LayerShapes(((*bottoms[0], *(1,) * (4 - len(bottoms[0]))),))

    @classmethod
    def flops(cls, spec: LayerSpec, bottoms: Sequence[Shape], tops: Sequence[Shape]) -> int:
        return count(bottoms[0]) * (5 if spec.param.mvn_param.normalize_variance else 2)  # as BatchNorm

    def forward(self, *bottoms: Tensor) -> Tensor:
        x = bottoms[0]
        x = x.reshape(*x.shape, *(1,) * (4 - x.dim()))
        axes = tuple(range(1 if self.across_channels else 2, x.dim()))
        if not self.normalize_variance:
            return x - x.mean(axes, keepdim=True)
        return _Normalise.apply(x, axes, self.eps)  # type: ignore[no-any-return, no-untyped-call]


class _Normalise(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, axes: tuple[int, ...], eps: float) -> Tensor:
        y = x - x.mean(axes, keepdim=True)
        divisor = y.square().mean(axes, keepdim=True).sqrt_().add_(eps)
        y.div_(divisor)
        ctx.save_for_backward(y, divisor)
        ctx.axes = axes  # type: ignore[attr-defined]
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, dy: Tensor) -> tuple[Tensor, None, None]:
        y, divisor = ctx.saved_tensors  # type: ignore[attr-defined]
        axes = ctx.axes  # type: ignore[attr-defined]
        dx = y * dy
        along = dx.mean(axes, keepdim=True)
        torch.mul(y, -along, out=dx)
        return dx.add_(dy).sub_(dy.mean(axes, keepdim=True)).div_(divisor), None, None
