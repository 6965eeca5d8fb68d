"""Silence: reads blobs, so that they are not outputs of the net."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from bpt.graph.layer_spec import Arity, Autocast, LayerShapes, LayerSpec, Shape
from bpt.nn.layers.base import LAYERS, Family, Layer


@LAYERS.register("Silence")
class Silence(Layer):
    """A layer of any number of bottoms without tops; the diff of the bottoms is 0."""

    numbers = Autocast.WIDEST
    arity = Arity(bottoms=(1, None), tops=(0, 0))
    no_collectives = True
    family = Family.JOIN

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        return LayerShapes(())

    @classmethod
    def mixes_samples(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> str:
        return ""

    def forward(self, *bottoms: Tensor) -> tuple[Tensor, ...]:
        return ()
