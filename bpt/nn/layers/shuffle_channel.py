"""ShuffleChannel: interleaves the channels of groups, so that the next grouped convolution mixes them."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from bpt.graph.layer_spec import LayerShapes, LayerSpec, Shape
from bpt.nn.kernels.channels_last import is_channels_last
from bpt.nn.layers.axes import show_bottoms
from bpt.nn.layers.base import LAYERS, Family, Layer
from bpt.nn.pass_context import PassContext

FIELD = "shuffle_channel_param"


@LAYERS.register("ShuffleChannel")
class ShuffleChannel(Layer):
    """The channels of ``group`` groups, interleaved: the first of each group, then the second of each, and so on.

    Bottom and top ``(N, channels, …)``. (Zhang et al., *ShuffleNet*, 2018, figure 1.)
    """

    sample_independent = True
    computes = False
    family = Family.JOIN

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        self.group = spec.param.shuffle_channel_param.group

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        group, shape = spec.param.shuffle_channel_param.group, bottoms[0]
        if len(shape) < 2:
            raise spec.error(f"needs a bottom of at least 2 axes (N, channels), not shape {shape}", "bottom")
        if not group or shape[1] % group:
            raise spec.error(
                f"group {group} does not divide the channels (axis 1) of bottom {show_bottoms(spec, bottoms)}",
                FIELD,
                "group",
            )
        return LayerShapes((shape,))

    def forward(self, *bottoms: Tensor) -> Tensor:
        x = bottoms[0]
        if is_channels_last(x):  # and stays so
            return self._shuffled(x.movedim(1, -1), x.dim() - 1).movedim(-1, 1)
        return self._shuffled(x, 1)

    def _shuffled(self, x: Tensor, axis: int) -> Tensor:
        groups = x.reshape(*x.shape[:axis], self.group, x.shape[axis] // self.group, *x.shape[axis + 1 :])
        return groups.transpose(axis, axis + 1).flatten(axis, axis + 1)
