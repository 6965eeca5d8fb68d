"""Permute, Transpose, Reorg and ShuffleChannel: the same elements in another order."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from bpt.graph.layer_spec import LayerShapes, LayerSpec, Shape
from bpt.nn.kernels.channels_last import is_channels_last
from bpt.nn.layers.axes import show_bottoms
from bpt.nn.layers.base import LAYERS, Family, Layer, setting
from bpt.nn.pass_context import PassContext


@LAYERS.register("Permute")
class Permute(Layer):
    """The bottom with axis ``order[i]`` as axis ``i``; axes that are not named follow in their order.

    From SSD's Caffe (Liu et al., *SSD: Single Shot MultiBox Detector*, 2016).
    """

    within_batch = sample_independent = True
    computes = False
    family = Family.JOIN

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        self.order = tuple(self._order(spec))

    @classmethod
    def _order(cls, spec: LayerSpec) -> Sequence[int]:
        return spec.param.permute_param.order

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        order, shape = spec.param.permute_param.order, bottoms[0]
        for index, axis in enumerate(order):
            if axis >= len(shape):
                raise spec.error(
                    f"order {axis} is outside [0, {len(shape)}), the axes of bottom {show_bottoms(spec, bottoms)}",
                    "permute_param",
                    "order",
                    index,
                )
            if axis in order[:index]:
                raise spec.error(f"order names axis {axis} twice", "permute_param", "order", index)
        return LayerShapes((tuple(shape[axis] for axis in _all_axes(order, len(shape))),))

    @classmethod
    def mixes_samples(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> str:
        moved = cls._order(spec)[:1] not in ([], [0])
        return "it moves axis 0, the samples" if moved else super().mixes_samples(spec, bottoms)

    def forward(self, *bottoms: Tensor) -> Tensor:
        # The memory has the top's order: the next layer is mostly Flatten or Reshape, which would copy otherwise.
        return bottoms[0].permute(_all_axes(self.order, bottoms[0].dim())).contiguous()


@LAYERS.register("Transpose")
class Transpose(Permute):
    """The bottom with axis ``dim[i]`` as axis ``i``; ``transpose_param`` names each axis once."""

    @classmethod
    def _order(cls, spec: LayerSpec) -> Sequence[int]:
        return spec.param.transpose_param.dim

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        order, shape = cls._order(spec), bottoms[0]
        if sorted(order) != list(range(len(shape))):
            raise spec.error(
                f"needs each of the {len(shape)} axes once as dim: {show_bottoms(spec, bottoms)}", "transpose_param"
            )
        return LayerShapes((tuple(shape[axis] for axis in order),))


def _all_axes(order: Sequence[int], axes: int) -> tuple[int, ...]:
    return (*order, *(axis for axis in range(axes) if axis not in order))


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
    stride = setting(int, "reorg_param.stride")
    reverse = setting(bool, "reorg_param.reverse")

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        stride, (shape,) = spec.param.reorg_param.stride, bottoms
        if not stride:
            raise spec.error("needs a stride", "reorg_param")
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


@LAYERS.register("ShuffleChannel")
class ShuffleChannel(Layer):
    """The channels of ``group`` groups, interleaved: the first of each group, then the second of each, and so on.

    Bottom and top ``(N, channels, …)``. (Zhang et al., *ShuffleNet*, 2018, figure 1.)
    """

    sample_independent = True
    computes = False
    family = Family.JOIN
    group = setting(int, "shuffle_channel_param.group")

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        group, shape = spec.param.shuffle_channel_param.group, bottoms[0]
        if len(shape) < 2:
            raise spec.error(f"needs a bottom of at least 2 axes (N, channels), not shape {shape}", "bottom")
        if not group or shape[1] % group:
            raise spec.error(
                f"group {group} does not divide the channels (axis 1) of bottom {show_bottoms(spec, bottoms)}",
                "shuffle_channel_param",
                "group",
            )
        return LayerShapes((shape,))

    def forward(self, *bottoms: Tensor) -> Tensor:
        x = bottoms[0]
        if is_channels_last(x):  # the result stays channels-last
            return self._shuffled(x.movedim(1, -1), x.dim() - 1).movedim(-1, 1)
        return self._shuffled(x, 1)

    def _shuffled(self, x: Tensor, axis: int) -> Tensor:
        groups = x.reshape(*x.shape[:axis], self.group, x.shape[axis] // self.group, *x.shape[axis + 1 :])
        return groups.transpose(axis, axis + 1).flatten(axis, axis + 1)
