"""HingeLoss, MultinomialLogisticLoss, SigmoidCrossEntropyLoss and FocalLoss: losses of scores of classes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_spec import LayerShapes, LayerSpec, Shape, count
from bpt.nn.layers.axes import canonical_axis, show_bottoms
from bpt.nn.layers.base import LAYERS
from bpt.nn.layers.labels import by_class, check_label_count, class_indices
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


def flatten_classes(scores: Tensor) -> Tensor:
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
        scores = flatten_classes(bottoms[0])
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
        probabilities = flatten_classes(bottoms[0])
        labels = class_indices(self.spec, bottoms[1], probabilities, None)
        own = probabilities.gather(1, labels.unsqueeze(1))
        return -clip_forward(own, LEAST).log().sum() / self.divisor(probabilities.shape[0])


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
            losses = torch.where(kept, losses, 0)  # not a product, which is NaN for inf
            valid = kept.sum()
        return losses.sum() / self.normalizer(scores.shape[0], scores.numel(), valid)


FIELD = "focal_loss_param"


@LAYERS.register("FocalLoss")
class FocalLoss(Loss):
    """``-α · (1 - p)^γ · log p``, with ``p`` the probability of the right answer. Two of Caffe's forks have this name.

    Bottoms: scores, and labels, which get no diff. With a label for each score (happynear's fork), each score is that
    of its own class. ``p`` is its sigmoid, or 1 minus that where the label is not 1, and ``α`` is then ``1 - alpha``.
    With a label for each place, ``p`` is the softmax along axis 1 (``softmax_param { axis }``), and ``α`` is ``alpha``.
    ``type: LINEAR`` is ``-α · log sigmoid(γ · x + beta) / γ``, with ``x`` the score of the label's class. Defaults:
    ``alpha`` 0.25, ``gamma`` 2, ``beta`` 1. ``loss_param`` says which labels are ignored and what divides the sum. The
    default divisor is the batch size for the first form, and the number of labels that are not ignored for the second.
    (Lin et al., *Focal Loss for Dense Object Detection*, 2017, eq. 5.)
    """

    reads = frozenset({"loss_param", "softmax_param"})

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        param = spec.param.focal_loss_param
        self.alpha, self.gamma, self.beta = param.alpha, param.gamma, param.beta
        self.linear = param.type == pb.FocalLossParameter.LINEAR
        self.axis = spec.param.softmax_param.axis

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        param = spec.param.focal_loss_param
        if param.type == pb.FocalLossParameter.LINEAR and not param.gamma > 0:
            raise spec.error("type: LINEAR divides by gamma, which must be above 0", FIELD, "gamma")
        if count(bottoms[0]) != count(bottoms[1]):
            axis = canonical_axis(spec, spec.param.softmax_param.axis, bottoms[0], "softmax_param", "axis")
            check_label_count(spec, bottoms, axis)
        elif param.type == pb.FocalLossParameter.LINEAR:
            raise spec.error("type: LINEAR is for a label for each place, not for each score", FIELD, "type")
        return super().infer(spec, bottoms)

    @classmethod
    def mixes_samples(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> str:
        along = count(bottoms[0]) != count(bottoms[1]) and not canonical_axis(
            spec, spec.param.softmax_param.axis, bottoms[0], "softmax_param", "axis"
        )
        return "its softmax runs along axis 0, the samples" if along else super().mixes_samples(spec, bottoms)

    @classmethod
    def counts_by_data(cls, spec: LayerSpec) -> str:
        left_out = spec.param.loss_param.HasField("ignore_label")
        return "loss_param { ignore_label } leaves labels out of the normaliser" if left_out else ""

    def forward(self, *bottoms: Tensor) -> Tensor:
        # On a rank without samples all counts are 0, so the shapes of a sample are compared.
        mine, labels = (bottom.shape[1:] if not len(bottom) else bottom.shape for bottom in bottoms)
        if count(mine) == count(labels):
            return self._of_scores(bottoms[0], bottoms[1].reshape(bottoms[0].shape))
        return self._of_places(*bottoms)

    def _of_scores(self, scores: Tensor, labels: Tensor) -> Tensor:
        positive = labels.trunc() == 1
        log_p = functional.logsigmoid(torch.where(positive, scores, -scores))
        weights = torch.where(positive, self.alpha, 1 - self.alpha)
        losses = -weights * _unsure(log_p) ** self.gamma * log_p
        valid: Tensor | int = labels.numel()
        if self.ignore_label is not None:
            kept = labels.trunc() != self.ignore_label
            losses, valid = torch.where(kept, losses, 0), kept.sum()
        given = self.spec.param.loss_param
        if not given.HasField("normalization") and not given.HasField("normalize"):
            return losses.sum() / self.divisor(len(scores))
        return losses.sum() / self.normalizer(len(scores), labels.numel(), valid)

    def _of_places(self, scores: Tensor, labels: Tensor) -> Tensor:
        scores = by_class(scores, self.axis)
        wanted = class_indices(self.spec, labels, scores, self.ignore_label)
        valid: Tensor | int = wanted.numel()
        kept = torch.ones_like(wanted, dtype=torch.bool)
        if self.ignore_label is not None:
            kept = wanted != self.ignore_label
            valid = kept.sum()
        numbers = scores if self.linear else functional.log_softmax(scores, 1)
        own = numbers.gather(1, (wanted * kept).unsqueeze(1)).squeeze(1)
        if self.linear:
            losses = -functional.logsigmoid(self.gamma * own + self.beta) / self.gamma
        else:
            losses = -(_unsure(own) ** self.gamma) * own
        losses = torch.where(kept, losses * self.alpha, 0)
        return losses.sum() / self.normalizer(len(wanted), wanted.numel(), valid)


def _unsure(log_p: Tensor) -> Tensor:
    """Return ``1 - p``, but never 0, where a power below 1 has an infinite slope."""
    return (-log_p.expm1()).clamp(min=torch.finfo(log_p.dtype).tiny)
