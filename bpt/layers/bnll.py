"""BNLL: the binomial normal log likelihood, a ReLU without a kink."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from bpt.layers.activation import Neuron
from bpt.layers.base import LAYERS

LARGE = 50.0  # Caffe takes exp(x) for exp(50) from here on in backward: the gradient is 1, to 2e-22


@LAYERS.register("BNLL")
class BNLL(Neuron):
    """``log(1 + exp(x))``, for any ``x``; above 50 it is ``x`` itself, and its gradient 1."""

    def forward(self, *bottoms: Tensor) -> Tensor:
        return functional.softplus(bottoms[0], threshold=LARGE)
