"""Softmax: exponentials that are normalised to a sum of 1."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from bpt.graph.layer_spec import LayerShapes, LayerSpec, Shape
from bpt.nn.layers.axes import canonical_axis
from bpt.nn.layers.base import LAYERS, Family, Layer, setting


def softmax_axis(spec: LayerSpec, bottom: Shape) -> int:
    """Return ``softmax_param { axis }``, counted from 0."""
    return canonical_axis(spec, spec.param.softmax_param.axis, bottom, "softmax_param", "axis")


@LAYERS.register("Softmax")
class Softmax(Layer):
    """``exp(x) / Σ exp(x)`` along ``softmax_param { axis }`` (default 1)."""

    within_batch = sample_independent = True
    family = Family.LOSS
    flops_per_bottom = 4  # subtract the largest, exp, add up, divide
    axis = setting(int, "softmax_param.axis")

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        softmax_axis(spec, bottoms[0])
        return LayerShapes((bottoms[0],))

    @classmethod
    def mixes_samples(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> str:
        along_samples = "" if softmax_axis(spec, bottoms[0]) else "its softmax runs along axis 0, the samples"
        return along_samples or super().mixes_samples(spec, bottoms)

    def forward(self, *bottoms: Tensor) -> Tensor:
        return torch.softmax(bottoms[0], self.axis)
