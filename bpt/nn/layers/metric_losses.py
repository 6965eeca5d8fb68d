"""ContrastiveLoss, TripletLoss and CenterLoss: distances of features by their classes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from bpt.graph.layer_spec import Arity, LayerShapes, LayerSpec, ParamSpec, Shape, count
from bpt.nn.layers.axes import canonical_axis, show_bottoms
from bpt.nn.layers.base import LAYERS, setting
from bpt.nn.layers.labels import row_indices
from bpt.nn.layers.loss import Loss

NEAR = 1e-4  # Caffe adds this to a distance before dividing by it


@LAYERS.register("ContrastiveLoss")
class ContrastiveLoss(Loss):
    """``1 / 2N · Σ y · d² + (1 - y) · max(margin - d, 0)²``, with ``d`` the distance of a pair of features.

    Under ``legacy_version`` the second term is ``max(margin - d², 0)``. Bottoms: features ``(N, C)`` twice, and ``N``
    labels, whose integer part is 0 if the pair is dissimilar. (Hadsell et al., *Dimensionality Reduction by Learning an
    Invariant Mapping*, 2006.)
    """

    arity = Arity(bottoms=(3, 3), auto_tops=True)
    reads = frozenset()
    bottoms_without_diff = (2,)
    margin = setting(float, "contrastive_loss_param.margin")
    legacy = setting(bool, "contrastive_loss_param.legacy_version")

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        first, second, labels = bottoms
        pairs = first[:1] == second[:1] and len(first) > 1 and count(first) == count(second)
        if not pairs or count(labels) != first[0]:
            raise spec.error(
                f"needs two bottoms of features (N, C) and N labels: {show_bottoms(spec, bottoms)}", "bottom"
            )
        return super().infer(spec, bottoms)

    def forward(self, *bottoms: Tensor) -> Tensor:
        differences = bottoms[0].flatten(1) - bottoms[1].flatten(1)
        similar = bottoms[2].flatten().trunc() != 0
        losses: Tensor = _Contrast.apply(differences, similar, self.margin, self.legacy)  # type: ignore[no-untyped-call]
        return losses.sum() / (2 * self.divisor(differences.shape[0]))


class _Contrast(torch.autograd.Function):
    """The term of each pair from its difference of features, with Caffe's gradient, which is not quite calculus."""

    @staticmethod
    def forward(ctx: FunctionCtx, differences: Tensor, similar: Tensor, margin: float, legacy: bool) -> Tensor:
        squares = differences.square().sum(1)
        missing = (margin - squares if legacy else margin - squares.sqrt()).clamp(min=0)
        ctx.save_for_backward(differences, similar, squares, missing)
        ctx.legacy = legacy  # type: ignore[attr-defined]
        return torch.where(similar, squares, missing if legacy else missing.square())

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, d_losses: Tensor) -> tuple[Tensor, None, None, None]:
        differences, similar, squares, missing = ctx.saved_tensors  # type: ignore[attr-defined]
        if ctx.legacy:  # type: ignore[attr-defined]
            push = (missing > 0).to(differences.dtype)
        else:
            push = missing / (squares.sqrt() + NEAR)
        factor = torch.where(similar, torch.ones_like(push), -push)
        return 2 * (d_losses * factor).unsqueeze(1) * differences, None, None, None


@LAYERS.register("TripletLoss")
class TripletLoss(Loss):
    """``1 / 2N · Σ max(margin + |a - p|² - |a - n|², 0)`` for anchors, positives and negatives.

    Bottoms: three of N samples of equally many features: anchors, features of the same kind, and features of another
    kind. ``margin`` defaults to 1. (Schroff, Kalenichenko, Philbin, *FaceNet*, 2015, eq. 3, as in Caffe's forks.) Other
    forks have a layer of this name with two bottoms, features and the triplets that another layer has chosen. That form
    is refused.
    """

    arity = Arity(bottoms=(2, 3), auto_tops=True)
    reads = frozenset()
    bottoms_without_diff = ()
    margin = setting(float, "triplet_loss_param.margin")

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        if len(bottoms) == 2:
            raise spec.error(
                "needs three bottoms: anchors, positives and negatives. With two, features and triplets or labels, "
                "Caffe's forks have different layers; slice the features into three blobs",
                "bottom",
            )
        if any(shape[:1] != bottoms[0][:1] or not shape or count(shape) != count(bottoms[0]) for shape in bottoms):
            raise spec.error(f"needs three bottoms of equally many features: {show_bottoms(spec, bottoms)}", "bottom")
        return super().infer(spec, bottoms)

    def forward(self, *bottoms: Tensor) -> Tensor:
        anchors, positives, negatives = (bottom.reshape(len(bottom), count(bottom.shape[1:])) for bottom in bottoms)
        near, far = ((anchors - other).square().sum(1) for other in (positives, negatives))
        return (self.margin + near - far).clamp(min=0).sum() / (2 * self.divisor(len(anchors)))


FIELD = "center_loss_param"


@LAYERS.register("CenterLoss")
class CenterLoss(Loss):
    """``1 / 2N · Σ |x - c[label]|²``, with a learned centre ``c`` for each of ``num_output`` classes.

    Bottoms: features, flattened from ``axis`` (1) on, and N labels. Blob: the centres ``(num_output, features)``. Their
    gradient is not that of the loss but ``Σ (c - x) / (1 + n)`` over the n features of a class, whatever
    ``loss_weight`` says. So with a rate of 1 they follow the means. (Wen et al., *A Discriminative Feature Learning
    Approach for Deep Face Recognition*, 2016, eq. 2 to 4.)
    """

    reads = frozenset()
    axis = setting(int, "center_loss_param.axis")

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        param = spec.param.center_loss_param
        if not param.num_output:
            raise spec.error("needs num_output, the number of classes, at least 1", FIELD, "num_output")
        axis = canonical_axis(spec, param.axis, bottoms[0], FIELD, "axis")
        if axis != 1 or count(bottoms[1]) != bottoms[0][0]:
            raise spec.error(f"needs features (N, …) and N labels: {show_bottoms(spec, bottoms)}", "bottom")
        centres = ParamSpec((param.num_output, count(bottoms[0][1:])), param.center_filler)
        return LayerShapes(super().infer(spec, bottoms).tops, (centres,))

    @classmethod
    def counts_by_data(cls, spec: LayerSpec) -> str:
        return "the gradient of its centres counts the samples of each class"

    def forward(self, *bottoms: Tensor) -> Tensor:
        features, centres = bottoms[0].flatten(1), self.blob(0)
        labels = row_indices(self.spec, bottoms[1].flatten(), 1, len(centres), "its classes")
        number = self.of_whole_batch(labels.bincount(minlength=len(centres)))
        differences: Tensor = _CentreDifference.apply(features, centres, labels, number)  # type: ignore[no-untyped-call]
        return differences.square().sum() / (2 * self.divisor(len(features)))


class _CentreDifference(torch.autograd.Function):
    """The difference of each feature from its centre; the centres get the gradient that CenterLoss defines."""

    @staticmethod
    def forward(ctx: FunctionCtx, features: Tensor, centres: Tensor, labels: Tensor, number: Tensor) -> Tensor:
        differences = features - centres[labels]
        ctx.save_for_backward(differences, labels, number)
        return differences

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, diff: Tensor) -> tuple[Tensor, Tensor, None, None]:
        differences, labels, number = ctx.saved_tensors  # type: ignore[attr-defined]
        sums = differences.new_zeros(len(number), differences.shape[1]).index_add_(0, labels, -differences)
        return diff, sums / (1 + number).unsqueeze(1), None, None
