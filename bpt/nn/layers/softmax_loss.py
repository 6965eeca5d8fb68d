"""SoftmaxWithLoss: multinomial logistic loss of the softmax of the scores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from bpt.graph.layer_spec import Arity, LayerShapes, LayerSpec, Shape
from bpt.nn.kernels.recording import plain_shape
from bpt.nn.layers.base import LAYERS
from bpt.nn.layers.graph_tracing import is_exported
from bpt.nn.layers.labels import (
    Classifying,
    are_distributions,
    by_class,
    check_label_count,
    check_settings,
    class_indices,
    cross_entropies,
)
from bpt.nn.layers.loss import Loss
from bpt.nn.layers.softmax import softmax_axis
from bpt.nn.pass_context import PassContext

LARGEST = -math.log(torch.finfo(torch.float32).tiny)  # 87.34: Caffe never takes the log of less than FLT_MIN


class _Clip(torch.autograd.Function):
    """``min(x, LARGEST)`` with the gradient of ``x``, since Caffe clips in forward only."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clamp(max=LARGEST)

    @staticmethod
    def backward(ctx: Any, diff: Tensor) -> Tensor:
        return diff


@LAYERS.register("SoftmaxWithLoss")
class SoftmaxWithLoss(Classifying, Loss):
    """The mean of ``-log(max(p[label], FLT_MIN))`` over the labels, with ``p`` the softmax of the scores.

    Bottoms: scores of any shape, with the classes along ``softmax_param { axis }`` (default 1); labels, one for each of
    the other positions, or distributions over the classes in the scores' shape; and optionally a weight for each label.
    Tops: the loss and, if named, the probabilities in the scores' shape (without a diff). ``loss_param`` says which
    labels are ignored and what divides the sum (default: the number of labels that are not ignored). Under
    ``weight_by_label_freqs``, from SegNet's Caffe, the loss of a label is multiplied by the ``class_weighting`` of its
    class. Under ``label_smoothing`` the label has this much less, and the other classes share it equally. (In NVIDIA's
    Caffe only the gradient has it, not the loss.) No weight changes what divides the sum.

    Raises:
        DataError: in ``forward``, for a label that is neither a class nor ignored.
    """

    arity = Arity(bottoms=(2, 3), tops=(1, 2), auto_tops=True)
    reads = frozenset({"loss_param", "softmax_param"})
    settings = "loss_param"
    weighs_classes = True
    flops_per_bottom = 4  # the softmax; operations for each label are few

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        axis = softmax_axis(spec, bottoms[0])
        if not are_distributions(bottoms[0], bottoms[1], axis):
            check_label_count(spec, bottoms, axis)
        check_settings(spec, bottoms, axis)
        param = spec.param.loss_param
        if param.weight_by_label_freqs and len(param.class_weighting) != bottoms[0][axis]:
            raise spec.error(
                f"weight_by_label_freqs needs a class_weighting for each of {bottoms[0][axis]} classes, given "
                f"{len(param.class_weighting)}",
                "loss_param",
                "weight_by_label_freqs",
            )
        tops = super().infer(spec, bottoms).tops
        return LayerShapes((*tops, bottoms[0]) if len(spec.tops) == 2 else tops)

    @classmethod
    def mixes_samples(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> str:
        along_samples = "" if softmax_axis(spec, bottoms[0]) else "its softmax runs along axis 0, the samples"
        return along_samples or super().mixes_samples(spec, bottoms)

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        self.axis = spec.param.softmax_param.axis
        self.gives_probabilities = len(spec.tops) >= 2
        param = spec.param.loss_param
        self.smoothing = param.label_smoothing
        self.weights: Tensor | None
        given = torch.tensor(param.class_weighting) if param.weight_by_label_freqs else None
        self.register_buffer("weights", given, persistent=False)

    def forward(self, *bottoms: Tensor) -> Tensor | tuple[Tensor, ...]:
        scores = by_class(bottoms[0], self.axis)
        log_p = functional.log_softmax(scores, 1)
        valid: Tensor | int
        if are_distributions(plain_shape(bottoms[0]), plain_shape(bottoms[1]), self.axis):
            losses = self._soft_losses(log_p, by_class(bottoms[1], self.axis).detach())
            valid = losses.numel()
        else:
            labels = class_indices(self.spec, bottoms[1], scores, self.ignore_label)
            losses = self._losses(log_p, labels)
            valid = labels.numel() if self.ignore_label is None else (labels != self.ignore_label).sum()
        if len(bottoms) == 3:
            losses = losses * bottoms[2].detach().reshape(losses.shape)
        loss = losses.sum() / self.normalizer(losses.shape[0], losses.numel(), valid)
        if not self.gives_probabilities:
            return loss
        probabilities = log_p.detach().exp().reshape(bottoms[0].shape)
        return self._more_tops(loss, probabilities, losses.detach(), bottoms[1])

    def _more_tops(self, loss: Tensor, probabilities: Tensor, losses: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
        return loss, probabilities

    def _losses(self, log_p: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of each label."""
        if self.smoothing:
            valid = torch.ones_like(labels) if self.ignore_label is None else (labels != self.ignore_label).long()
            return self._soft_losses(log_p, labels * valid) * valid  # an ignored label may be no class
        ignored = -1 if self.ignore_label is None else self.ignore_label  # class_indices has refused labels below 0
        if is_exported():  # torch's exporter gives ONNX's operator of this loss a scalar result, so sums are lost
            kept = labels != ignored
            own = log_p.gather(1, (labels * kept).unsqueeze(1)).squeeze(1)
            losses = torch.where(kept, -own, 0.0)
        else:
            losses = functional.nll_loss(log_p, labels, reduction="none", ignore_index=ignored)
        clipped: Tensor = _Clip.apply(losses)  # type: ignore[no-untyped-call]
        if self.weights is None:
            return clipped
        return clipped * self.weights.to(clipped)[labels.clamp(0, len(self.weights) - 1)]

    def _soft_losses(self, log_p: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of each smoothed label, a class or a distribution."""
        clipped: Tensor = _Clip.apply(-log_p)  # type: ignore[no-untyped-call]
        weights = None if self.weights is None else self.weights.to(clipped)
        return cross_entropies(clipped, labels, self.smoothing, weights)


@LAYERS.register("SoftmaxWithLossOHEM")
class SoftmaxWithLossOHEM(SoftmaxWithLoss):
    """SoftmaxWithLoss with a third top: the loss of each label, without a diff, in the labels' shape of 4 axes.

    BoxAnnotatorOHEM chooses by it. (From R-FCN's Caffe; Shrivastava et al., *Training Region-based Object Detectors
    with Online Hard Example Mining*, 2016.)
    """

    arity = Arity(bottoms=(2, 2), tops=(1, 3), auto_tops=True)

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        check_label_count(spec, bottoms, softmax_axis(spec, bottoms[0]))
        shapes = super().infer(spec, bottoms)
        tops = (*shapes.tops[:1], bottoms[0], _with_4_axes(bottoms[1]))
        return LayerShapes(tops[: max(1, len(spec.tops))])

    def _more_tops(self, loss: Tensor, probabilities: Tensor, losses: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
        tops = (loss, probabilities, losses.reshape(_with_4_axes(labels.shape)))
        return tops[: len(self.spec.tops)]


def _with_4_axes(shape: Sequence[int]) -> Shape:
    return (*shape, *(1,) * (4 - len(shape)))
