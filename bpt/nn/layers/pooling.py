"""Pooling and SPP: the maximum, the average or a random pick of windows, or of pyramids of bins."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from bpt.base.errors import LayerError
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
    def saved_for_backward(cls, spec: LayerSpec) -> float:
        return 3.0 if spec.param.pooling_param.pool == pb.PoolingParameter.MAX else 1.0  # places have 8 bytes

    @classmethod
    def autocast(cls, spec: LayerSpec) -> Autocast:
        # Half precision cannot represent all places, and random numbers are compared with sums.
        drawn = spec.param.pooling_param.pool == pb.PoolingParameter.STOCHASTIC
        return Autocast.FULL if drawn or len(spec.tops) == 2 else Autocast.WIDEST

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        self.window = PoolingWindow.read(spec)
        self.method = spec.param.pooling_param.pool
        self.sample_independent = (
            self.method != pb.PoolingParameter.STOCHASTIC
        )  # STOCHASTIC draws numbers for the samples of the pass
        self.counts_pad = spec.param.pooling_param.avg_include_pad
        self.name = spec.name
        self.wants_places = len(spec.tops) == 2
        self.top_is_free = self.method != pb.PoolingParameter.STOCHASTIC

    def set_up(self, bottoms: Sequence[Shape]) -> None:
        if self.window.kernel:
            self.window = self.window.expand(bottoms[0][2:])

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
        return (
            0 if spec.param.pooling_param.pool == pb.PoolingParameter.AVE else count(tops[0])
        )  # backward reads the places

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
        return self.method == pb.PoolingParameter.MAX and not self.wants_places and self._all_filled(sizes)

    def is_plain_average(self, sizes: Shape) -> bool:
        """Return whether it gives only averages of windows that have elements, for a bottom with these spatial axes.

        An average of the whole bottom is none of these.
        """
        is_whole = self.window.expand(sizes).kernel == tuple(sizes)
        return self.method == pb.PoolingParameter.AVE and not is_whole and self._all_filled(sizes)

    def _all_filled(self, sizes: Shape) -> bool:
        window = self.window.expand(sizes)
        axes = zip(window.places(sizes), window.stride, window.pad, sizes, strict=True)
        return all((places - 1) * stride - pad < size for places, stride, pad, size in axes)

    def _draw(self, x: Tensor, window: PoolingWindow) -> Tensor:
        """Return a number in [0, 1) for each element of the top."""
        shape = (*x.shape[:2], *window.places(x.shape[2:]))
        return draw_uniform(self.context, self.share_of(x), shape, x.device, "pooling", self.name).to(x.dtype)


@LAYERS.register("SPP")
class SPP(Layer):
    """Spatial pyramid pooling: ``pyramid_height`` grids; grid number l has 2^l bins on each spatial axis.

    Bottom ``(N, channels, spatial axes …)`` with 1 to 3 spatial axes (Caffe supports 2 only). Top ``(N, values)``: the
    bins of all channels of the first grid, then those of the second, and so on. With one grid the top stays ``(N,
    channels, 1 …)``. A bin has ``ceil(size / 2^l)`` elements on an axis. The bottom is padded to fit, with the larger
    half in front. Maxima, averages and random picks follow Pooling's rules, also at pads. ``engine`` changes nothing.
    (He, Zhang, Ren and Sun, *Spatial Pyramid Pooling in Deep Convolutional Networks*, 2014.)
    """

    no_collectives = True
    family = Family.POOLING

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        self.grids = spec.param.spp_param.pyramid_height
        self.method = spec.param.spp_param.pool
        self.sample_independent = (
            self.method != pb.SPPParameter.STOCHASTIC
        )  # STOCHASTIC draws numbers for the samples of the pass
        self.name = spec.name

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        bottom = bottoms[0]
        param = spec.param.spp_param
        if not param.pyramid_height:
            raise spec.error("needs pyramid_height, at least 1", "spp_param", "pyramid_height")
        if not 3 <= len(bottom) <= 5:
            raise spec.error(f"needs 1 to 3 spatial axes after (N, channels), not shape {bottom}", "bottom")
        sizes = bottom[2:]
        if 0 in sizes:
            raise spec.error(f"a bottom of shape {bottom} has no elements to pool", "bottom")
        if (
            param.pyramid_height > max(sizes).bit_length()
        ):  # more bins than elements; this comparison makes no huge number
            raise _too_high(spec, bottom)
        values = 0
        for grid in range(param.pyramid_height):
            window = _window(grid, sizes)
            if any(pad >= kernel for pad, kernel in zip(window.pad, window.kernel, strict=True)):
                raise _too_high(spec, bottom)
            if param.pool == pb.SPPParameter.STOCHASTIC and any(window.pad):
                raise spec.error(
                    f"STOCHASTIC takes no pad, and {2**grid} bins do not divide a bottom of shape {bottom}",
                    "spp_param",
                    "pool",
                )
            values += bottom[1] * count(window.places(sizes))
        if param.pyramid_height == 1:
            return LayerShapes(((*bottom[:2], *(1 for _ in sizes)),))
        return LayerShapes(((bottom[0], values),))

    @classmethod
    def flops(cls, spec: LayerSpec, bottoms: Sequence[Shape], tops: Sequence[Shape]) -> int:
        return spec.param.spp_param.pyramid_height * count(bottoms[0])

    def forward(self, *bottoms: Tensor) -> Tensor:
        x = bottoms[0]
        if self.grids == 1:
            return self._pool(x, 0)
        return torch.cat([self._pool(x, grid).flatten(1) for grid in range(self.grids)], 1)

    def _pool(self, x: Tensor, grid: int) -> Tensor:
        window = _window(grid, x.shape[2:])
        if self.method == pb.SPPParameter.AVE:
            return average_pool(x, window)
        if self.method == pb.SPPParameter.STOCHASTIC:
            return stochastic_pool(x, window, self._draw(x, window, grid) if self.training else None)
        top = max_pool(x, window, False)
        assert isinstance(top, Tensor)
        return top

    def _draw(self, x: Tensor, window: PoolingWindow, grid: int) -> Tensor:
        """Return a number in [0, 1) for each bin."""
        shape = (*x.shape[:2], *window.places(x.shape[2:]))
        return draw_uniform(self.context, self.share_of(x), shape, x.device, "spp", self.name, str(grid)).to(x.dtype)


def _window(grid: int, sizes: Sequence[int]) -> PoolingWindow:
    """Return the window of one grid (Caffe: ``SPPLayer::GetPoolingParam``)."""
    bins = 2**grid
    kernel = tuple(-(-size // bins) for size in sizes)
    pad = tuple((side * bins - size + 1) // 2 for side, size in zip(kernel, sizes, strict=True))
    return PoolingWindow(kernel, kernel, pad, ceil=True)


def _too_high(spec: LayerSpec, bottom: Shape) -> LayerError:
    return spec.error(
        f"a bottom of shape {bottom} is too small for pyramid_height {spec.param.spp_param.pyramid_height}: "
        "the last grid would have bins of pad only",
        "spp_param",
        "pyramid_height",
    )
