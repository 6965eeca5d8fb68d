"""Threshold: which elements exceed a number."""

from __future__ import annotations

import torch
from torch import Tensor

from bpt.context import PassContext
from bpt.graph.spec import LayerSpec
from bpt.layers.activation import Neuron
from bpt.layers.base import LAYERS


@LAYERS.register("Threshold")
class Threshold(Neuron):
    """1 where ``x > threshold`` (default 0), else 0. It never runs backward: it hands no diff back."""

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        self.threshold = spec.param.threshold_param.threshold

    @classmethod
    def allow_force_backward(cls, bottom: int) -> bool:
        return False

    @torch.no_grad()
    def forward(self, *bottoms: Tensor) -> Tensor:
        return (bottoms[0] > self.threshold).to(bottoms[0].dtype)
