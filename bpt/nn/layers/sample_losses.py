"""Losses with one label for each sample: Caffe's old ones, which have no other axes."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor
from torch.nn import functional

from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_spec import LayerShapes, LayerSpec, Shape, count
from bpt.nn.layers.axes import show_bottoms
from bpt.nn.layers.base import LAYERS
from bpt.nn.layers.labels import class_indices
from bpt.nn.layers.loss import Loss, clip_forward
from bpt.nn.pass_context import PassContext

LEAST = 1e-20  # Caffe never takes the log of less (kLOG_THRESHOLD)


class SampleLoss(Loss):
    """The base of losses with one label for each sample.

    Bottoms: ``(N, classes)``, later axes of which are flattened, and N labels, all of which count.

    Raises:
        DataError: in ``forward``, for a label that is not a class.
    """

    reads = frozenset()

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        scores, labels = bottoms
        if not scores or labels[:1] != scores[:1] or count(labels[1:]) != 1:
            raise spec.error(f"needs one label for each sample (axis 0): {show_bottoms(spec, bottoms)}", "bottom", 1)
        return super().infer(spec, bottoms)


def sample_independent(scores: Tensor) -> Tensor:
    """Return ``scores`` as (samples, classes): all axes from 1 on are classes."""
    return scores.reshape(scores.shape[0], count(scores.shape[1:]))


@LAYERS.register("HingeLoss")
class HingeLoss(SampleLoss):
    """``1/N · Σ max(0, 1 - s · x)``, with ``s`` 1 for the label's score ``x`` and -1 for all others.

    Under ``hinge_loss_param { norm: L2 }`` the summands are squared. Where a score just keeps the margin, its gradient
    is 0. Bottoms: scores and labels, as in ``SampleLoss``.
    """

    flops_per_bottom = 3  # subtract, compare, add up

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        self.squares = spec.param.hinge_loss_param.norm == pb.HingeLossParameter.L2

    def forward(self, *bottoms: Tensor) -> Tensor:
        scores = sample_independent(bottoms[0])
        labels = class_indices(self.spec, bottoms[1], scores, None)
        signs = scores.new_full(scores.shape, -1).scatter(1, labels.unsqueeze(1), 1)
        lacking = functional.relu(1 - signs * scores)
        losses = lacking.square() if self.squares else lacking
        return losses.sum() / self.divisor(scores.shape[0])


@LAYERS.register("MultinomialLogisticLoss")
class MultinomialLogisticLoss(SampleLoss):
    """``-1/N · Σ log(max(p[label], 1e-20))``.

    The gradient is ``-1 / max(p[label], 1e-20) / N``. For a probability of 0 it is huge but finite: train with
    SoftmaxWithLoss. Bottoms: probabilities and labels, as in ``SampleLoss``.
    """

    @classmethod
    def flops(cls, spec: LayerSpec, bottoms: Sequence[Shape], tops: Sequence[Shape]) -> int:
        return 3 * count(bottoms[1])  # compare, log, add up

    def forward(self, *bottoms: Tensor) -> Tensor:
        probabilities = sample_independent(bottoms[0])
        labels = class_indices(self.spec, bottoms[1], probabilities, None)
        own = probabilities.gather(1, labels.unsqueeze(1))
        return -clip_forward(own, LEAST).log().sum() / self.divisor(probabilities.shape[0])
