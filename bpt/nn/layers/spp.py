"""SPP: pools each channel over grids of 1, 2, 4 … bins a side, whatever its size."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from bpt.base.errors import LayerError
from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_spec import LayerShapes, LayerSpec, Shape, count
from bpt.nn.layers.base import LAYERS, Family, Layer
from bpt.nn.layers.pooling_functions import average_pool, max_pool, stochastic_pool
from bpt.nn.layers.pooling_window import PoolingWindow
from bpt.nn.layers.random_masks import draw_uniform
from bpt.nn.pass_context import PassContext

FIELD = "spp_param"


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
        self.sample_independent = self.method != pb.SPPParameter.STOCHASTIC  # which draws for the samples that it sees
        self.name = spec.name

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        bottom = bottoms[0]
        param = spec.param.spp_param
        if not param.pyramid_height:
            raise spec.error("needs pyramid_height, at least 1", FIELD, "pyramid_height")
        if not 3 <= len(bottom) <= 5:
            raise spec.error(f"needs 1 to 3 spatial axes after (N, channels), not shape {bottom}", "bottom")
        sizes = bottom[2:]
        if 0 in sizes:
            raise spec.error(f"a bottom of shape {bottom} has no elements to pool", "bottom")
        if param.pyramid_height > max(sizes).bit_length():  # more bins than elements; and no number is made so large
            raise _too_high(spec, bottom)
        values = 0
        for grid in range(param.pyramid_height):
            window = _window(grid, sizes)
            if any(pad >= kernel for pad, kernel in zip(window.pad, window.kernel, strict=True)):
                raise _too_high(spec, bottom)
            if param.pool == pb.SPPParameter.STOCHASTIC and any(window.pad):
                raise spec.error(
                    f"STOCHASTIC takes no pad, and {2**grid} bins do not divide a bottom of shape {bottom}",
                    FIELD,
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
        "the last grid would have bins of nothing but pad",
        FIELD,
        "pyramid_height",
    )
