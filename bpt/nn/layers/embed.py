"""Embed: selects rows of a learned table by indices (word vectors)."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor
from torch.nn import functional

from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_spec import LayerShapes, LayerSpec, ParamSpec, Shape, count
from bpt.nn.layers.base import ALL_BOTTOMS, LAYERS, Family, Layer
from bpt.nn.layers.labels import row_indices
from bpt.nn.pass_context import PassContext

FIELD = "embed_param"


@LAYERS.register("Embed")
class Embed(Layer):
    """The row for each index of a table of ``input_dim`` rows and ``num_output`` columns, plus a bias.

    It equals an InnerProduct on vectors that are 1 at the index and 0 elsewhere, without making them. Bottom: indices
    of any shape, which get no diff; fractions are truncated. Top: that shape and ``num_output``. Blobs: the table
    ``(input_dim, num_output)``, and ``(num_output,)`` if ``bias_term``.

    Raises:
        DataError: in ``forward``, for an index outside [0, ``input_dim``). Caffe reads out of bounds.
    """

    no_collectives = True
    family = Family.CONNECTED
    bottoms_without_diff = ALL_BOTTOMS

    @classmethod
    def in_words(cls, layer: pb.LayerParameter, axes: int) -> Sequence[str]:
        return (f"{layer.embed_param.input_dim} → {layer.embed_param.num_output}",)

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        param = spec.param.embed_param
        for field in ("num_output", "input_dim"):
            if not getattr(param, field):
                raise spec.error(f"needs {field}, at least 1", FIELD, field)
        params = [ParamSpec((param.input_dim, param.num_output), param.weight_filler)]
        if param.bias_term:
            params.append(ParamSpec((param.num_output,), param.bias_filler))
        return LayerShapes(((*bottoms[0], param.num_output),), tuple(params))

    @classmethod
    def flops(cls, spec: LayerSpec, bottoms: Sequence[Shape], tops: Sequence[Shape]) -> int:
        return count(tops[0]) * spec.param.embed_param.bias_term

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        param = spec.param.embed_param
        self.rows, self.bias_term = param.input_dim, param.bias_term

    def forward(self, *bottoms: Tensor) -> Tensor:
        indices = row_indices(self.spec, bottoms[0], 0, self.rows, f"the rows of its table ({FIELD} {{ input_dim }})")
        top = functional.embedding(indices, self.blob(0))
        return top + self.blob(1) if self.bias_term else top
