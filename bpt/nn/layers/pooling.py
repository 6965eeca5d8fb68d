"""Pooling: the maximum, the average or a random pick of each window of a channel."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_spec import Arity, Autocast, LayerShapes, LayerSpec, Shape, count
from bpt.nn.layers.base import LAYERS, Family, Layer
from bpt.nn.layers.pooling_functions import average_pool, max_pool, stochastic_pool
from bpt.nn.layers.pooling_window import FIELD, PoolingWindow
from bpt.nn.layers.random_masks import draw_uniform
from bpt.nn.layers.windows import kernel_in_words, steps_in_words
from bpt.nn.pass_context import PassContext


@LAYERS.register("Pooling")
class Pooling(Layer):
    """The maximum, the average or a random pick of each window of each channel.

    Bottom ``(N, channels, spatial axes …)`` with 1 to 3 spatial axes (Caffe supports 2 only). The top has fewer places,
    by the rule of ``PoolingWindow``. A second top under ``MAX`` holds the place of each maximum, as a float: a flat
    index into its channel's plane. Of equal maxima the first counts.

    ``AVE`` divides by the window's size without the part that reaches over the far pad. The near pad counts, unless
    ``avg_include_pad`` is false (Intel's Caffe). ``STOCHASTIC`` is for bottoms of at least 0. In training it picks an
    element with a probability in proportion to it. In tests it takes the average with these probabilities as weights.
    """

    arity = Arity(tops=(1, 2))
    no_collectives = True
    family = Family.POOLING

    @classmethod
    def keeps(cls, spec: LayerSpec) -> float:
        return 3.0 if spec.param.pooling_param.pool == pb.PoolingParameter.MAX else 1.0  # places have 8 bytes

    @classmethod
    def autocast(cls, spec: LayerSpec) -> Autocast:
        # Places are whole numbers, of which half precision has too few; what is drawn is compared with sums.
        drawn = spec.param.pooling_param.pool == pb.PoolingParameter.STOCHASTIC
        return Autocast.FULL if drawn or len(spec.tops) == 2 else Autocast.WIDEST

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        self.window = PoolingWindow.read(spec)
        self.method = spec.param.pooling_param.pool
        self.sample_independent = (
            self.method != pb.PoolingParameter.STOCHASTIC
        )  # which draws for the samples that it sees
        self.counts_pad = spec.param.pooling_param.avg_include_pad
        self.name = spec.name
        self.wants_places = len(spec.tops) == 2
        self.top_is_free = self.method != pb.PoolingParameter.STOCHASTIC

    @classmethod
    def in_words(cls, layer: pb.LayerParameter, axes: int) -> Sequence[str]:
        param = layer.pooling_param
        rule = pb.PoolingParameter.PoolMethod.Name(param.pool)
        if param.global_pooling:
            return [f"{rule} global"]
        return [f"{rule} {kernel_in_words(param, axes)}".rstrip(), *steps_in_words(param)]

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        bottom = bottoms[0]
        method = spec.param.pooling_param.pool
        window = PoolingWindow.read(spec)
        if method == pb.PoolingParameter.STOCHASTIC and any(window.pad):
            raise spec.error("pad is for MAX and AVE pooling only", FIELD, "pad")
        if method != pb.PoolingParameter.MAX and len(spec.tops) == 2:
            raise spec.error("only MAX pooling has a second top (the places of the maxima)", "top", 1)
        if not 3 <= len(bottom) <= 5:
            raise spec.error(f"needs 1 to 3 spatial axes after (N, channels), not shape {bottom}", "bottom")
        window.check(spec, bottom)
        top = (*bottom[:2], *window.expand(bottom[2:]).places(bottom[2:]))
        return LayerShapes((top,) * max(1, len(spec.tops)))

    @classmethod
    def flops(cls, spec: LayerSpec, bottoms: Sequence[Shape], tops: Sequence[Shape]) -> int:
        window = PoolingWindow.read(spec).expand(bottoms[0][2:])
        return count(tops[0]) * count(window.kernel)

    @classmethod
    def reread(cls, spec: LayerSpec, bottoms: Sequence[Shape], tops: Sequence[Shape]) -> int:
        return 0 if spec.param.pooling_param.pool == pb.PoolingParameter.AVE else count(tops[0])  # the places

    def forward(self, *bottoms: Tensor) -> Tensor | tuple[Tensor, ...]:
        x = bottoms[0]
        window = self.window.expand(x.shape[2:])
        if self.method == pb.PoolingParameter.AVE:
            return average_pool(x, window, self.counts_pad)
        if self.method == pb.PoolingParameter.STOCHASTIC:
            return stochastic_pool(x, window, self._draw(x, window) if self.training else None)
        return max_pool(x, window, self.wants_places)

    def is_plain_max(self, sizes: Shape) -> bool:
        """Return whether it gives only maxima of windows that have elements, for a bottom with these spatial axes."""
        window = self.window.expand(sizes)
        axes = zip(window.places(sizes), window.stride, window.pad, sizes, strict=True)
        filled = all((places - 1) * stride - pad < size for places, stride, pad, size in axes)
        return self.method == pb.PoolingParameter.MAX and not self.wants_places and filled

    def _draw(self, x: Tensor, window: PoolingWindow) -> Tensor:
        """Return a number in [0, 1) for each element of the top."""
        shape = (*x.shape[:2], *window.places(x.shape[2:]))
        return draw_uniform(self.context, self.share_of(x), shape, x.device, "pooling", self.name).to(x.dtype)
