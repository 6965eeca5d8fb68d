"""CenterLoss: pulls features to the centre of their class."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from bpt.graph.layer_spec import LayerShapes, LayerSpec, ParamSpec, Shape, count
from bpt.nn.layers.axes import canonical_axis, show_bottoms
from bpt.nn.layers.base import LAYERS
from bpt.nn.layers.labels import row_indices
from bpt.nn.layers.loss import Loss
from bpt.nn.pass_context import PassContext

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

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        self.axis = spec.param.center_loss_param.axis

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
        apart: Tensor = _Apart.apply(features, centres, labels, number)  # type: ignore[no-untyped-call]
        return apart.square().sum() / (2 * self.divisor(len(features)))


class _Apart(torch.autograd.Function):
    """The difference of each feature from its centre; the centres get the gradient that CenterLoss defines."""

    @staticmethod
    def forward(ctx: FunctionCtx, features: Tensor, centres: Tensor, labels: Tensor, number: Tensor) -> Tensor:
        apart = features - centres[labels]
        ctx.save_for_backward(apart, labels, number)
        return apart

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, diff: Tensor) -> tuple[Tensor, Tensor, None, None]:
        apart, labels, number = ctx.saved_tensors  # type: ignore[attr-defined]
        sums = apart.new_zeros(len(number), apart.shape[1]).index_add_(0, labels, -apart)
        return diff, sums / (1 + number).unsqueeze(1), None, None
