"""PReLU: a ReLU that learns its slope below 0."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor
from torch.nn import functional

from bpt.graph.spec import LayerShapes, LayerSpec, ParamSpec, Shape
from bpt.layers.activation import Neuron
from bpt.layers.base import LAYERS
from bpt.proto import bpt_pb2 as pb


@LAYERS.register("PReLU")
class PReLU(Neuron):
    """``max(x, 0) + slope · min(x, 0)``; at 0 the gradient is the slope.

    Bottom ``(N, channels, …)``. Blob: the slopes ``(channels,)``, or ``()`` if ``channel_shared``; they
    start at 0.25.
    """

    elementwise = False  # a slope for each channel

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        param = spec.param.prelu_param
        bottom = bottoms[0]
        if len(bottom) < 2:
            raise spec.error(f"needs a bottom of at least 2 axes (N, channels), not shape {bottom}", "bottom")
        filler = param.filler if param.HasField("filler") else pb.FillerParameter(type="constant", value=0.25)
        return LayerShapes((bottom,), (ParamSpec(() if param.channel_shared else (bottom[1],), filler),))

    def forward(self, *bottoms: Tensor) -> Tensor:
        return functional.prelu(bottoms[0], self.blob(0))
