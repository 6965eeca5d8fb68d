"""Tile: repeats a blob along an axis."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from bpt.graph.layer_spec import LayerShapes, LayerSpec, Shape
from bpt.nn.layers.axes import canonical_axis
from bpt.nn.layers.base import LAYERS, Family, Layer
from bpt.nn.pass_context import PassContext

FIELD = "tile_param"


@LAYERS.register("Tile")
class Tile(Layer):
    """The bottom repeated ``tiles`` times along ``axis`` (default 1)."""

    sample_independent = True
    computes = False
    family = Family.JOIN

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        self.axis, self.tiles = spec.param.tile_param.axis, spec.param.tile_param.tiles

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        param, shape = spec.param.tile_param, bottoms[0]
        axis = canonical_axis(spec, param.axis, shape, FIELD, "axis")
        if param.tiles < 1:
            raise spec.error(f"needs tiles, at least 1, not {param.tiles}", FIELD, "tiles")
        return LayerShapes(((*shape[:axis], param.tiles * shape[axis], *shape[axis + 1 :]),))

    @classmethod
    def mixes_samples(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> str:
        param = spec.param.tile_param
        along_samples = canonical_axis(spec, param.axis, bottoms[0], FIELD, "axis") == 0 and param.tiles > 1
        return "it repeats the batch along axis 0, the samples" if along_samples else ""

    def forward(self, *bottoms: Tensor) -> Tensor:
        x = bottoms[0]
        if self.tiles == 1:
            return x
        axis = self.axis % x.dim()
        return x.repeat(*(1,) * axis, self.tiles, *(1,) * (x.dim() - axis - 1))
