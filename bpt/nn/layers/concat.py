"""Concat: joins bottoms along an axis."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from bpt.graph.layer_spec import Arity, LayerShapes, LayerSpec, Shape
from bpt.nn.layers.axes import axis_or_dim, show_bottoms
from bpt.nn.layers.base import LAYERS, Family, Layer
from bpt.nn.pass_context import PassContext


@LAYERS.register("Concat")
class Concat(Layer):
    """The bottoms joined along ``axis`` (default 1; the old form is ``concat_dim``); their other axes must agree."""

    arity = Arity(bottoms=(1, None))
    within_batch = sample_independent = True
    computes = False
    family = Family.JOIN

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        axis = axis_or_dim(spec, bottoms[0], "concat_param", "concat_dim")
        before, after = bottoms[0][:axis], bottoms[0][axis + 1 :]
        for index, shape in enumerate(bottoms):
            if len(shape) != len(bottoms[0]) or shape[:axis] != before or shape[axis + 1 :] != after:
                raise spec.error(
                    f"bottoms must agree in all axes but axis {axis}: {show_bottoms(spec, bottoms)}", "bottom", index
                )
        return LayerShapes(((*before, sum(shape[axis] for shape in bottoms), *after),))

    @classmethod
    def mixes_samples(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> str:
        axis = axis_or_dim(spec, bottoms[0], "concat_param", "concat_dim")
        along_samples = "it joins blobs along axis 0, the samples" if axis == 0 and len(bottoms) > 1 else ""
        return along_samples or super().mixes_samples(spec, bottoms)

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        param = spec.param.concat_param
        self.axis = param.concat_dim if param.HasField("concat_dim") else param.axis
        self.top_is_free = len(spec.bottoms) > 1

    def forward(self, *bottoms: Tensor) -> Tensor:
        return bottoms[0] if len(bottoms) == 1 else torch.cat(bottoms, self.axis)
