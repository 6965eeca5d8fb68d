"""Element-wise activations of one bottom: ReLU, Sigmoid, TanH."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from bpt.context import RunContext
from bpt.graph.spec import LayerShapes, LayerSpec, Shape
from bpt.layers.base import LAYERS, Layer


class Neuron(Layer):
    """A layer whose top has its bottom's shape (Caffe: NeuronLayer)."""

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        return LayerShapes((bottoms[0],))


@LAYERS.register("ReLU")
class ReLU(Neuron):
    """``max(x, 0) + negative_slope · min(x, 0)``; at 0 the gradient is ``negative_slope``."""

    def __init__(self, spec: LayerSpec, context: RunContext) -> None:
        super().__init__(spec, context)
        self.slope = spec.param.relu_param.negative_slope

    def forward(self, *bottoms: Tensor) -> Tensor:
        return functional.leaky_relu(bottoms[0], self.slope) if self.slope else torch.relu(bottoms[0])


@LAYERS.register("Sigmoid")
class Sigmoid(Neuron):
    """``1 / (1 + exp(-x))``."""

    def forward(self, *bottoms: Tensor) -> Tensor:
        return torch.sigmoid(bottoms[0])


@LAYERS.register("TanH")
class TanH(Neuron):
    """``tanh(x)``."""

    def forward(self, *bottoms: Tensor) -> Tensor:
        return torch.tanh(bottoms[0])
