"""LRN: local response normalisation."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor
from torch.nn import functional

from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_spec import Autocast, LayerShapes, LayerSpec, Shape, count
from bpt.nn.kernels.lrn_kernel import lrn_across
from bpt.nn.layers.base import LAYERS, Family, Layer
from bpt.nn.pass_context import PassContext

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
    def keeps(cls, spec: LayerSpec) -> float:
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
