"""Parameter: a learned blob as a top."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_spec import Arity, LayerShapes, LayerSpec, ParamSpec, Shape
from bpt.nn.layers.base import LAYERS, Family, Layer


@LAYERS.register("Parameter")
class Parameter(Layer):
    """A learned blob: no bottoms; the top, and the only blob, have the shape ``parameter_param { shape }``.

    The blob starts at 0 (Caffe has no filler here either). Set it from a caffemodel, from Python, or by sharing.
    """

    arity = Arity(bottoms=(0, 0))
    whole_batch_only = "its top is learned and has no samples to divide"
    computes = False
    family = Family.DATA

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        shape = tuple(spec.param.parameter_param.shape.dim)
        return LayerShapes((shape,), (ParamSpec(shape, pb.FillerParameter()),))

    @classmethod
    def gives_constants(cls, spec: LayerSpec) -> bool:
        return True

    def forward(self, *bottoms: Tensor) -> Tensor:
        # A copy, so that a change of this pass's blob does not change the parameter.
        return self.blob(0).clone()
