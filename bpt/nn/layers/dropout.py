"""Dropout: sets random elements to 0 in training."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_spec import Autocast, LayerShapes, LayerSpec, Shape
from bpt.nn.layers.activation import Neuron
from bpt.nn.layers.base import LAYERS
from bpt.nn.layers.random_masks import draw_uniform
from bpt.nn.pass_context import PassContext


@LAYERS.register("Dropout")
class Dropout(Neuron):
    """The bottom with each element set to 0 with probability ``dropout_ratio`` in training; unchanged in tests.

    Training divides the other elements by ``1 - dropout_ratio``. Under ``scale_train: false`` (Faster R-CNN's Caffe)
    training does not divide, and testing multiplies by ``1 - dropout_ratio``. The mask follows the elements in their
    logical order, whatever the memory format.
    """

    numbers = Autocast.WIDEST
    sample_independent = False  # it draws numbers for the samples of the pass
    no_collectives = True
    overwrites = (0,)

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        self.name = spec.name
        self.ratio = spec.param.dropout_param.dropout_ratio
        self.scales_training = spec.param.dropout_param.scale_train

    @classmethod
    def in_words(cls, layer: pb.LayerParameter, axes: int) -> Sequence[str]:
        return (f"{layer.dropout_param.dropout_ratio:g}",)

    @classmethod
    def saved_for_backward(cls, spec: LayerSpec) -> float:
        return 1.0  # the mask

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        ratio = spec.param.dropout_param.dropout_ratio
        if not 0 <= ratio < 1:
            raise spec.error(
                f"dropout_ratio must be at least 0 and below 1, not {ratio:g}", "dropout_param", "dropout_ratio"
            )
        return super().infer(spec, bottoms)

    def forward(self, *bottoms: Tensor) -> Tensor:
        if not self._computes_now:
            return bottoms[0]
        return bottoms[0] * self._factor(bottoms[0])

    def overwrite(self, place: int, *bottoms: Tensor) -> Tensor:
        if not self._computes_now:
            return bottoms[0]
        return bottoms[0].mul_(self._factor(bottoms[0]))

    @property
    def _computes_now(self) -> bool:
        """Whether the top differs from the bottom in the phase under way."""
        return self.ratio > 0 and (self.training or not self.scales_training)

    def _factor(self, x: Tensor) -> Tensor | float:
        """Return the factor of ``x``: the mask in training, else a number."""
        return self._mask(x) if self.training else 1 - self.ratio

    def _mask(self, x: Tensor) -> Tensor:
        """Return for each element of ``x`` 0 or the scale, which ``scale_train`` decides."""
        scale = 1 / (1 - self.ratio) if self.scales_training else 1
        # A scalar counts as a bottom of one row.
        draw = draw_uniform(self.context, self.share_of(x), x.shape or (1,), x.device, "dropout", self.name)
        return draw.view(x.shape).ge_(self.ratio).mul_(scale).to(x.dtype)
