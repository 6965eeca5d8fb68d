"""Reorg: turns the cells of a feature map into channels."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from bpt.graph.layer_spec import LayerShapes, LayerSpec, Shape
from bpt.nn.layers.axes import show_bottoms
from bpt.nn.layers.base import LAYERS, Family, Layer
from bpt.nn.pass_context import PassContext

FIELD = "reorg_param"


@LAYERS.register("Reorg")
class Reorg(Layer):
    """``(N, C, H, W)`` as ``(N, C · s², H / s, W / s)``, in the order of darknet, whose weights require it.

    The memory of a sample is read as ``(C / s², W, s, H, s)``, and the axes of size ``s`` come first. Width and height
    are exchanged, as in the fork that has the layer. ``reverse: true`` does the opposite: ``(N, C / s², H · s, W ·
    s)``. (Redmon, Farhadi, *YOLO9000*, 2017: the passthrough layer.)
    """

    within_batch = sample_independent = True
    computes = False
    family = Family.JOIN

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        self.stride, self.reverse = spec.param.reorg_param.stride, spec.param.reorg_param.reverse

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        stride, (shape,) = spec.param.reorg_param.stride, bottoms
        if not stride:
            raise spec.error("needs a stride", FIELD)
        if len(shape) != 4 or shape[1] % stride**2:
            raise spec.error(
                f"needs a bottom (N, C, H, W) with a multiple of {stride**2} channels: {show_bottoms(spec, bottoms)}",
                "bottom",
            )
        if spec.param.reorg_param.reverse:
            return LayerShapes(((shape[0], shape[1] // stride**2, shape[2] * stride, shape[3] * stride),))
        if shape[2] % stride or shape[3] % stride:
            raise spec.error(f"needs height and width divisible by {stride}: {show_bottoms(spec, bottoms)}", "bottom")
        return LayerShapes(((shape[0], shape[1] * stride**2, shape[2] // stride, shape[3] // stride),))

    def forward(self, *bottoms: Tensor) -> Tensor:
        images, channels, height, width = bottoms[0].shape
        stride, fewer = self.stride, channels // self.stride**2
        x = bottoms[0].contiguous()
        if self.reverse:
            moved = x.view(images, stride, stride, fewer, width, height).permute(0, 3, 4, 1, 5, 2)
            return moved.reshape(images, fewer, height * stride, width * stride)
        moved = x.view(images, fewer, width, stride, height, stride).permute(0, 3, 5, 1, 2, 4)
        return moved.reshape(images, channels * stride**2, height // stride, width // stride)
