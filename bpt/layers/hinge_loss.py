"""HingeLoss: what the scores lack to a margin of 1, one class against the others."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor
from torch.nn import functional

from bpt.context import PassContext
from bpt.graph.spec import LayerSpec, Shape, count
from bpt.layers.base import LAYERS
from bpt.layers.labels import class_indices
from bpt.layers.sample_labels import SampleLoss, by_sample
from bpt.proto import bpt_pb2 as pb


@LAYERS.register("HingeLoss")
class HingeLoss(SampleLoss):
    """``1/N · Σ max(0, 1 - s · x)``, with ``s`` 1 for the label's score ``x`` and -1 for all others.

    Under ``hinge_loss_param { norm: L2 }`` the summands are squared. Where a score just keeps the margin, its
    gradient is 0. Bottoms: scores and labels, see ``SampleLoss``.
    """

    @classmethod
    def flops(cls, spec: LayerSpec, bottoms: Sequence[Shape], tops: Sequence[Shape]) -> int:
        return 3 * count(bottoms[0])  # subtract, compare, add up

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        self.squares = spec.param.hinge_loss_param.norm == pb.HingeLossParameter.L2

    def forward(self, *bottoms: Tensor) -> Tensor:
        scores = by_sample(bottoms[0])
        labels = class_indices(self.spec, bottoms[1], scores, None)
        signs = scores.new_full(scores.shape, -1).scatter(1, labels.unsqueeze(1), 1)
        lacking = functional.relu(1 - signs * scores)
        losses = lacking.square() if self.squares else lacking
        return losses.sum() / self.divisor(scores.shape[0])
