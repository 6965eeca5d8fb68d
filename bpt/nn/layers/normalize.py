"""Normalize, MVN and LRN: normalise each sample by itself."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.nn import functional

from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_spec import Autocast, LayerShapes, LayerSpec, ParamSpec, Shape, count
from bpt.nn.kernels.lrn_kernel import lrn_across
from bpt.nn.layers.base import LAYERS, Family, Layer, setting
from bpt.nn.pass_context import PassContext


@LAYERS.register("Normalize")
class Normalize(Layer):
    """``scale · x / sqrt(Σ x² + eps)``, with the sum over a whole sample.

    Bottom and top ``(N, channels, …)``. With ``norm_param { across_spatial: false }`` each place has a sum of its own,
    over the channels. ``eps`` defaults to 1e-10. Blob: the scale, ``()``, or ``(channels,)`` with ``channel_shared:
    false``. It starts at 1 unless the text has a ``scale_filler``.

    From SSD's Caffe (Liu et al., *SSD: Single Shot MultiBox Detector*, 2016; Liu et al., *ParseNet*, 2015, eq. 1 to 3).
    The diff is the true one. With several scales, SSD's sum in backward ignores that they differ.
    """

    sample_independent = True
    family = Family.NORM
    settings = "norm_param"
    flops_per_top = 4  # square, sum, two products
    across_spatial = setting(bool, "norm_param.across_spatial")
    eps = setting(float, "norm_param.eps")

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        param, bottom = spec.param.norm_param, bottoms[0]
        if len(bottom) < 2:
            raise spec.error(f"needs a bottom of at least 2 axes (N, channels), not shape {bottom}", "bottom")
        ones = pb.FillerParameter(type="constant", value=1)
        filler = param.scale_filler if param.HasField("scale_filler") else ones
        return LayerShapes((bottom,), (ParamSpec(() if param.channel_shared else (bottom[1],), filler),))

    def forward(self, *bottoms: Tensor) -> Tensor:
        x, scale = bottoms[0], self.blob(0)
        axes = tuple(range(1, x.dim())) if self.across_spatial else (1,)
        factors = x.square().sum(axes, keepdim=True).add_(self.eps).rsqrt()
        return x * (factors * (scale.view(-1, *(1,) * (x.dim() - 2)) if scale.dim() else scale))


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
    across_channels = setting(bool, "mvn_param.across_channels")
    eps = setting(float, "mvn_param.eps")
    normalize_variance = setting(bool, "mvn_param.normalize_variance")

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


FIELD = "lrn_param"


@LAYERS.register("LRN")
class LRN(Layer):
    """Each element divided by a power of the squares around it. Bottom and top ``(N, channels, H, W)``.

    ``ACROSS_CHANNELS``: ``x · (k + alpha / n · Σ x²)^-beta`` over the ``n = local_size`` channels around it.
    ``WITHIN_CHANNEL``: ``x · (1 + alpha · mean(x²))^-beta`` over the ``n × n`` places around it. That mean counts the
    zeros of a pad of ``n // 2``; ``k`` is ignored, as in Caffe.
    """

    numbers = Autocast.WIDEST
    sample_independent = True
    family = Family.NORM

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        param = spec.param.lrn_param
        self.size, self.alpha, self.beta, self.k = param.local_size, param.alpha, param.beta, param.k
        self.across = param.norm_region == pb.LRNParameter.ACROSS_CHANNELS

    @classmethod
    def in_words(cls, layer: pb.LayerParameter, axes: int) -> Sequence[str]:
        return (str(layer.lrn_param.local_size),)

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        size = spec.param.lrn_param.local_size
        if size % 2 == 0:
            raise spec.error(f"local_size must be odd, not {size}", FIELD, "local_size")
        if len(bottoms[0]) != 4:
            raise spec.error(f"needs a bottom of 4 axes (N, channels, H, W), not shape {bottoms[0]}", "bottom")
        return LayerShapes((bottoms[0],))

    @classmethod
    def saved_for_backward(cls, spec: LayerSpec) -> float:
        return 2.0  # the sums of squares, too

    @classmethod
    def flops(cls, spec: LayerSpec, bottoms: Sequence[Shape], tops: Sequence[Shape]) -> int:
        param = spec.param.lrn_param
        across = param.norm_region == pb.LRNParameter.ACROSS_CHANNELS
        window = param.local_size if across else param.local_size**2
        return count(tops[0]) * (window + 5)  # square, sum, multiply-add, power, product

    def forward(self, *bottoms: Tensor) -> Tensor:
        x = bottoms[0]
        if self.across:
            return lrn_across(x, self.size, self.alpha, self.beta, self.k)
        mean = functional.avg_pool2d(x * x, self.size, 1, self.size // 2)
        return x * (1 + self.alpha * mean).pow(-self.beta)
