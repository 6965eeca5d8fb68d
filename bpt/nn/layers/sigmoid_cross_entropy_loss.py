"""SigmoidCrossEntropyLoss: the logistic loss of independent scores, which are logits of probabilities."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_spec import LayerShapes, LayerSpec, Shape, count
from bpt.nn.layers.axes import show_bottoms
from bpt.nn.layers.base import LAYERS
from bpt.nn.layers.loss import Loss


@LAYERS.register("SigmoidCrossEntropyLoss")
class SigmoidCrossEntropyLoss(Loss):
    """The sum of ``-t · log p - (1 - t) · log(1 - p)`` with ``p = sigmoid(x)``, by default over the batch size.

    Bottoms: scores ``x`` of any shape; targets ``t`` in [0, 1], as many. A target whose integer part is
    ``ignore_label`` does not count.
    """

    default_normalization = pb.LossParameter.BATCH_SIZE
    settings = "loss_param"

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        if count(bottoms[0]) != count(bottoms[1]):
            raise spec.error(f"needs as many targets as scores: {show_bottoms(spec, bottoms)}", "bottom")
        return super().infer(spec, bottoms)

    def forward(self, *bottoms: Tensor) -> Tensor:
        scores, targets = bottoms[0], bottoms[1].reshape(bottoms[0].shape)
        losses = functional.binary_cross_entropy_with_logits(scores, targets, reduction="none")
        valid: Tensor | int = losses.numel()
        if self.ignore_label is not None:
            kept = targets.trunc() != self.ignore_label
            losses = torch.where(kept, losses, 0)  # not a product, of which inf makes NaN
            valid = kept.sum()
        return losses.sum() / self.normalizer(scores.shape[0], scores.numel(), valid)
