"""Loss: the base of layers whose top is part of the objective that training minimises (Caffe: LossLayer)."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import ClassVar

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_spec import Arity, LayerShapes, LayerSpec, Shape, count
from bpt.nn.layers.axes import show_bottoms
from bpt.nn.layers.base import Family, Layer
from bpt.nn.pass_context import PassContext


def clip_forward(x: Tensor, least: float) -> Tensor:
    """Return ``max(x, least)`` with the gradient of ``x``, also below ``least``."""
    clipped: Tensor = _ClipForward.apply(x, least)  # type: ignore[no-untyped-call]
    return clipped


class _ClipForward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, least: float) -> Tensor:
        return x.clamp(min=least)

    @staticmethod
    def backward(ctx: FunctionCtx, diff: Tensor) -> tuple[Tensor, None]:
        return diff, None


class Loss(Layer):
    """A layer from predictions and labels to one scalar: a sum over samples or labels, divided by their number.

    The labels get no diff. The text may omit the top. With many ranks the number is the whole batch's, so a rank's loss
    and diffs are its summands of the whole batch's.
    """

    arity = Arity(bottoms=(2, 2), auto_tops=True)
    is_loss = True
    sums_over_samples = 1
    reads = frozenset({"loss_param"})  # without it the divisor is always the batch size, as in Caffe
    default_normalization: int = pb.LossParameter.VALID
    weighs_classes: ClassVar[bool] = False  # by class_weighting, of SegNet's Caffe, and label_smoothing, of NVIDIA's
    family = Family.LOSS
    bottoms_without_diff: ClassVar[Container[int]] = (1, 2)

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        """Return the shape of one scalar top.

        Raises:
            LayerError: the first two bottoms have different numbers of samples.
        """
        if bottoms[0][:1] != bottoms[1][:1]:
            raise spec.error(
                f"predictions and labels must have equally many samples (axis 0): {show_bottoms(spec, bottoms)}",
                "bottom",
            )
        for field in ("weight_by_label_freqs", "label_smoothing"):
            if "loss_param" in cls.reads and getattr(spec.param.loss_param, field) and not cls.weighs_classes:
                why = f"{field} is for SoftmaxWithLoss, {spec.type} does not weigh classes"
                raise spec.error(why, "loss_param", field)
        return LayerShapes(((),))

    @classmethod
    def flops(cls, spec: LayerSpec, bottoms: Sequence[Shape], tops: Sequence[Shape]) -> int:
        return super().flops(spec, bottoms, tops) if cls.flops_per_bottom else sum(map(count, bottoms))

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        param = spec.param.loss_param
        self.ignore_label = param.ignore_label if param.HasField("ignore_label") else None
        self.normalization = self._normalization(param)
        self.fixed_normalizer = param.pre_fixed_normalizer

    def _normalization(self, param: pb.LossParameter) -> int:
        """Return ``normalization``, or its equivalent of the old form ``normalize``."""
        if param.HasField("normalization"):
            return param.normalization
        if param.HasField("normalize"):
            return pb.LossParameter.VALID if param.normalize else pb.LossParameter.BATCH_SIZE
        return self.default_normalization

    @classmethod
    def counts_by_data(cls, spec: LayerSpec) -> str:
        if "loss_param" not in cls.reads:
            return ""
        layer = cls(spec, PassContext())
        left_out = layer.ignore_label is not None and layer.normalization == pb.LossParameter.VALID
        return "loss_param { ignore_label } leaves labels out of the normaliser" if left_out else ""

    def normalizer(self, samples: int, labels: int, valid: Tensor | int) -> Tensor | float:
        """Return the divisor of the sum under the text's ``normalization`` (Caffe: ``GetNormalizer``).

        Args:
            samples: the batch size.
            labels: the number of all labels, spatial positions included.
            valid: the number of those that are not ``ignore_label``.
        """
        if self.normalization == pb.LossParameter.NONE:
            return 1
        if self.normalization == pb.LossParameter.PRE_FIXED:
            return max(self.fixed_normalizer, 1.0)
        if self.normalization == pb.LossParameter.BATCH_SIZE:
            return self.divisor(samples)
        return self.divisor(labels if self.normalization == pb.LossParameter.FULL else valid)

    def divisor(self, number: Tensor | int) -> Tensor | int:
        """Return ``number`` of samples or labels of this pass as a divisor.

        It is at least 1, so without samples the loss is 0. Only here does a number of this rank become the divisor of a
        loss, which is that of the whole batch. In training under ``balance_param { normalizer: UNIFORM }`` it is
        instead the rank's own, times the number of ranks. The loss is then the mean of the ranks' means, as in StaticLB
        (``g = 1/P · Σ g_p``), which differs from the batch's if shares differ.
        """
        context = self.context
        if context.unweighted and self.training:
            return at_least_1(number * context.ranks)
        return at_least_1(self.of_whole_batch(number))


def at_least_1(number: Tensor | int) -> Tensor | int:
    """Return ``number`` as a divisor, which is at least 1."""
    return number.clamp(min=1) if isinstance(number, Tensor) else max(number, 1)
