"""SoftmaxWithLoss: multinomial logistic loss of the softmax of the scores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from bpt.context import PassContext
from bpt.graph.spec import Arity, LayerShapes, LayerSpec, Shape, count
from bpt.layers.base import LAYERS
from bpt.layers.labels import Classifying, by_class, check_label_count, class_indices
from bpt.layers.loss import Loss
from bpt.layers.softmax import softmax_axis

LARGEST = -math.log(torch.finfo(torch.float32).tiny)  # 87.34: Caffe never takes the log of less than FLT_MIN


class _Clip(torch.autograd.Function):
    """``min(x, LARGEST)`` whose gradient does not notice, as Caffe clips forward only."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clamp(max=LARGEST)

    @staticmethod
    def backward(ctx: Any, diff: Tensor) -> Tensor:
        return diff


@LAYERS.register("SoftmaxWithLoss")
class SoftmaxWithLoss(Classifying, Loss):
    """Mean of ``-log(max(p[label], FLT_MIN))`` over the labels, ``p`` the softmax of the scores.

    Bottoms: scores of any shape, the classes along ``softmax_param { axis }`` (default 1); labels, one for
    each of the other positions. Tops: the loss and, if named, the probabilities in the scores' shape
    (without a diff). ``loss_param`` tells what is ignored and what the sum is divided by (default: the
    labels that are not ignored).

    Raises:
        DataError: in ``forward``, for a label that is neither a class nor ignored.
    """

    arity = Arity(bottoms=(2, 2), tops=(1, 2), auto_tops=True)
    reads = frozenset({"loss_param", "softmax_param"})
    settings = "loss_param"

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        check_label_count(spec, bottoms, softmax_axis(spec, bottoms[0]))
        tops = super().infer(spec, bottoms).tops
        return LayerShapes((*tops, bottoms[0]) if len(spec.tops) == 2 else tops)

    @classmethod
    def flops(cls, spec: LayerSpec, bottoms: Sequence[Shape], tops: Sequence[Shape]) -> int:
        return 4 * count(bottoms[0])  # the softmax; what is done once a label does not weigh

    @classmethod
    def mixes_samples(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> str:
        along_samples = "" if softmax_axis(spec, bottoms[0]) else "its softmax runs along axis 0, the samples"
        return along_samples or super().mixes_samples(spec, bottoms)

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        self.axis = spec.param.softmax_param.axis
        self.gives_probabilities = len(spec.tops) == 2

    def forward(self, *bottoms: Tensor) -> Tensor | tuple[Tensor, ...]:
        scores = by_class(bottoms[0], self.axis)
        labels = class_indices(self.spec, bottoms[1], scores, self.ignore_label)
        log_p = functional.log_softmax(scores, 1)
        loss = self._loss(log_p, labels)
        if not self.gives_probabilities:
            return loss
        return loss, log_p.detach().exp().reshape(bottoms[0].shape)

    def _loss(self, log_p: Tensor, labels: Tensor) -> Tensor:
        valid: Tensor | int = labels.numel()
        ignored = -1  # class_indices has refused all labels below 0
        if self.ignore_label is not None:
            ignored = self.ignore_label
            valid = (labels != ignored).sum()
        losses = functional.nll_loss(log_p, labels, reduction="none", ignore_index=ignored)
        clipped: Tensor = _Clip.apply(losses)  # type: ignore[no-untyped-call]
        return clipped.sum() / self.normalizer(labels.shape[0], labels.numel(), valid)
