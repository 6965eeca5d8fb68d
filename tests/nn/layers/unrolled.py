"""Checks a recurrent layer against its equations, written plainly."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from bpt.nn.layers import Layer

Plain = Callable[[Tensor, Tensor, Sequence[Tensor]], Tensor]


def check_against(plain: Plain, layer: Layer, markers: Tensor, inputs: int) -> None:
    """The top and every gradient, for ``inputs`` numbers a step, are those of ``plain(x, markers, blobs)``."""
    generator = torch.Generator()
    found = []
    for run in (lambda x: layer(x, markers), lambda x: plain(x, markers, list(layer.blobs))):
        x = torch.randn(*markers.shape, inputs, generator=generator.manual_seed(2)).requires_grad_()
        top = run(x)
        weights = torch.arange(1.0, 1 + top.numel()).reshape(top.shape)
        found.append([top, *torch.autograd.grad((top * weights).sum(), [x, *layer.blobs])])
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-5)
