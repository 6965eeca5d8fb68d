"""Element-wise activations of one bottom: ReLU, ReLU6, ELU, Sigmoid, Swish, TanH."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from bpt.context import PassContext
from bpt.graph.spec import LayerShapes, LayerSpec, Shape
from bpt.layers.base import LAYERS, Family, Layer


class Neuron(Layer):
    """A layer whose top has its bottom's shape (Caffe: NeuronLayer)."""

    elementwise = by_sample = True
    family = Family.ACTIVATION

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        return LayerShapes((bottoms[0],))


@LAYERS.register("ReLU")
class ReLU(Neuron):
    """``max(x, 0) + negative_slope · min(x, 0)``; at 0 the gradient is ``negative_slope``."""

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        self.slope = spec.param.relu_param.negative_slope

    def forward(self, *bottoms: Tensor) -> Tensor:
        return functional.leaky_relu(bottoms[0], self.slope) if self.slope else torch.relu(bottoms[0])


@LAYERS.register("ReLU6")
class ReLU6(ReLU):
    """``min(ReLU(x), 6)``, with ``relu_param { negative_slope }`` as ReLU; at 6 the gradient is 0.

    Of the community's Caffes; the nets that use it are MobileNets (Sandler et al., *MobileNetV2*, 2018).
    """

    def forward(self, *bottoms: Tensor) -> Tensor:
        if not self.slope:
            return functional.relu6(bottoms[0])
        y = functional.leaky_relu(bottoms[0], self.slope)
        return torch.where(y >= 6, 6.0, y)  # not clamp, whose gradient at 6 is 1


@LAYERS.register("ELU")
class ELU(Neuron):
    """``x`` above 0, else ``alpha · (exp(x) - 1)``; at 0 the gradient is ``alpha``.

    (Clevert et al., *Fast and Accurate Deep Network Learning by Exponential Linear Units*, 2016.)
    """

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        self.alpha = spec.param.elu_param.alpha

    def forward(self, *bottoms: Tensor) -> Tensor:
        return functional.elu(bottoms[0], self.alpha)


@LAYERS.register("Sigmoid")
class Sigmoid(Neuron):
    """``1 / (1 + exp(-x))``."""

    def forward(self, *bottoms: Tensor) -> Tensor:
        return torch.sigmoid(bottoms[0])


@LAYERS.register("Swish")
class Swish(Neuron):
    """``x / (1 + exp(-beta · x))``. (Ramachandran et al., *Searching for Activation Functions*, 2017.)"""

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        self.beta = spec.param.swish_param.beta

    def forward(self, *bottoms: Tensor) -> Tensor:
        x = bottoms[0]
        return functional.silu(x) if self.beta == 1 else x * torch.sigmoid(x * self.beta)


@LAYERS.register("TanH")
class TanH(Neuron):
    """``tanh(x)``."""

    def forward(self, *bottoms: Tensor) -> Tensor:
        return torch.tanh(bottoms[0])
