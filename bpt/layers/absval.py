"""AbsVal: the absolute value."""

from __future__ import annotations

from torch import Tensor

from bpt.layers.activation import Neuron
from bpt.layers.base import LAYERS


@LAYERS.register("AbsVal")
class AbsVal(Neuron):
    """``|x|``; at 0 the gradient is 0."""

    def forward(self, *bottoms: Tensor) -> Tensor:
        return bottoms[0].abs()
