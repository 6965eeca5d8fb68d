"""Power: a polynomial of one term."""

from __future__ import annotations

import torch
from torch import Tensor

from bpt.context import PassContext
from bpt.graph.spec import LayerSpec
from bpt.layers.activation import Neuron
from bpt.layers.base import LAYERS


@LAYERS.register("Power")
class Power(Neuron):
    """``(shift + scale · x) ^ power``.

    If ``scale · power`` is 0 the top is constant, even where the bottom is infinite, and hands no diff back.
    """

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        param = spec.param.power_param
        self.power, self.scale, self.shift = param.power, param.scale, param.shift

    def forward(self, *bottoms: Tensor) -> Tensor:
        x = bottoms[0]
        if self.scale * self.power == 0:
            return torch.full_like(x, self.shift).pow_(self.power)
        linear = x * self.scale if self.scale != 1 else x
        linear = linear + self.shift if self.shift else linear
        return linear if self.power == 1 else linear.pow(self.power)
