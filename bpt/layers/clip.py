"""Clip: an element outside a range becomes its nearest bound."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from bpt.context import PassContext
from bpt.graph.spec import LayerShapes, LayerSpec, Shape
from bpt.layers.activation import Neuron
from bpt.layers.base import LAYERS


@LAYERS.register("Clip")
class Clip(Neuron):
    """``max(min, min(x, max))``; the gradient is 1 at the bounds and between them, else 0."""

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        self.least, self.most = spec.param.clip_param.min, spec.param.clip_param.max

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        if not spec.param.HasField("clip_param"):
            raise spec.error("needs clip_param { min max }", "type")
        least, most = spec.param.clip_param.min, spec.param.clip_param.max
        if not least <= most:
            raise spec.error(f"min {least:g} must be at most max {most:g}", "clip_param", "min")
        return super().infer(spec, bottoms)

    def forward(self, *bottoms: Tensor) -> Tensor:
        return bottoms[0].clamp(self.least, self.most)
