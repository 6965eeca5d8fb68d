"""Layers of a user's own, for the tests of Python layers."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Gate(nn.Module):
    """``x · sigmoid(a channel's weight · x)``, the weights from random numbers."""

    def __init__(self, param_str: str) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(int(param_str or 4), 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(self.weight * x)
