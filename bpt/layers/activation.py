"""Element-wise activations of one bottom: ReLU, Sigmoid, TanH."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

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

    def forward(self, *bottoms: Tensor) -> Tensor:
        slope = self.spec.param.relu_param.negative_slope
        return functional.leaky_relu(bottoms[0], slope) if slope else torch.relu(bottoms[0])
