"""Axpy: a blob with a factor for each channel, added to another blob."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from bpt.graph.layer_spec import Arity, Autocast, LayerShapes, LayerSpec, Shape, count
from bpt.nn.layers.axes import show_bottoms
from bpt.nn.layers.base import LAYERS, Family, Layer


@LAYERS.register("Axpy")
class Axpy(Layer):
    """``a · x + y``: the end of a block of SENet (Hu et al., *Squeeze-and-Excitation Networks*, 2018).

    Bottoms ``a`` ``(N, channels)``, or with axes of 1 at the end; ``x`` and ``y`` ``(N, channels, …)``. Top as ``x``.
    """

    numbers = Autocast.WIDEST
    arity = Arity(bottoms=(3, 3))
    sample_independent = True
    family = Family.JOIN
    flops_per_top = 2

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        factors, x, y = bottoms
        if len(x) < 2 or x != y or factors[:2] != x[:2] or count(factors[2:]) != 1:
            raise spec.error(
                "needs factors (N, channels) and two blobs of one shape (N, channels, …): "
                f"{show_bottoms(spec, bottoms)}",
                "bottom",
            )
        return LayerShapes((x,))

    def forward(self, *bottoms: Tensor) -> Tensor:
        factors, x, y = bottoms
        return torch.addcmul(y, factors.reshape(*x.shape[:2], *(1,) * (x.dim() - 2)), x)
