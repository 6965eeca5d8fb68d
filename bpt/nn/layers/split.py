"""Split: a copy of a blob for each of its readers."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from bpt.graph.layer_spec import Arity, LayerShapes, LayerSpec, Shape
from bpt.nn.layers.base import LAYERS, Family, Layer
from bpt.nn.layers.graph_tracing import is_written_down
from bpt.nn.pass_context import PassContext


@LAYERS.register("Split")
class Split(Layer):
    """A copy of the bottom for each top; the bottom's diff is the sum of theirs. ``insert_splits`` adds this layer."""

    arity = Arity(tops=(1, None))
    sample_independent = is_view = True
    computes = False
    family = Family.JOIN

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        return LayerShapes((bottoms[0],) * len(spec.tops))

    @classmethod
    def mixes_samples(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> str:
        return ""

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        self.copies = len(spec.tops)

    def forward(self, *bottoms: Tensor) -> tuple[Tensor, ...]:
        # Views share the data, but each is a tensor of its own and so has a diff of its own. ``view_as`` of a single
        # image loses the stride of axis 0, by which kernels tell that it is channels-last.
        if is_written_down():
            return tuple(bottoms[0].view_as(bottoms[0]) for _ in range(self.copies))
        if not torch.is_grad_enabled():
            return (bottoms[0],) * self.copies
        return tuple(bottoms[0][...] for _ in range(self.copies))
