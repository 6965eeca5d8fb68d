"""Normalize: features of unit length, times a learned scale."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_spec import LayerShapes, LayerSpec, ParamSpec, Shape
from bpt.nn.layers.base import LAYERS, Family, Layer
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

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        param = spec.param.norm_param
        self.across_spatial, self.eps = param.across_spatial, param.eps

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
