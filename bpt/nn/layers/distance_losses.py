"""EuclideanLoss, L1Loss, SmoothL1Loss and SmoothL1LossOHEM: distances of predictions from their targets."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from bpt.graph.layer_spec import Arity, LayerShapes, LayerSpec, Shape, count
from bpt.nn.layers.axes import show_bottoms
from bpt.nn.layers.base import LAYERS
from bpt.nn.layers.loss import Loss
from bpt.nn.pass_context import PassContext


@LAYERS.register("EuclideanLoss")
class EuclideanLoss(Loss):
    """``Σ (a - b)² / (2 N)``, N the batch size. Both bottoms get a diff.

    The bottoms may differ in shape if their samples have equally many elements.
    """

    reads = frozenset()
    flops_per_bottom = 3  # subtract, square, add up
    bottoms_without_diff = ()

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        shapes = super().infer(spec, bottoms)
        if count(bottoms[0][1:]) != count(bottoms[1][1:]):
            raise spec.error(
                f"bottoms must have equally many elements in each sample: {show_bottoms(spec, bottoms)}", "bottom"
            )
        return shapes

    def forward(self, *bottoms: Tensor) -> Tensor:
        a, b = bottoms
        squares = functional.mse_loss(a, b.reshape(a.shape), reduction="sum")
        return squares / (2 * self.divisor(a.shape[0]))


FIELD = "l1_loss_param"


@LAYERS.register("L1Loss")
class L1Loss(Loss):
    """The sum of ``|a - b|``, or of ``|a|`` with one bottom, over the batch size.

    Differences that are NaN do not count, nor do those smaller than ``plateau`` (0). Under ``l2_per_location`` the sum
    is of ``sqrt(Σ d² + epsilon)`` over the channels of each place. ``l2_prescale_by_channels`` multiplies the squares
    by 1 / channels. A place below the plateau gives ``sqrt(epsilon)``. ``normalize_by_num_entries`` divides instead by
    the number of values that are not NaN, over the channels. Both bottoms ``(N, channels, …)`` get a diff. For a
    difference of 0 the diff is -1, as in Caffe, or 0 where it does not count. (Dosovitskiy et al., *FlowNet*, 2015.)
    """

    arity = Arity(bottoms=(1, 2), auto_tops=True)
    reads = frozenset()
    bottoms_without_diff = ()

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        self.param = spec.param.l1_loss_param

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        if len(bottoms[0]) < 2 or any(bottom != bottoms[0] for bottom in bottoms):
            raise spec.error(f"needs bottoms (N, channels, …) of one shape: {show_bottoms(spec, bottoms)}", "bottom")
        return LayerShapes(((),))

    @classmethod
    def counts_by_data(cls, spec: LayerSpec) -> str:
        by_data = spec.param.l1_loss_param.normalize_by_num_entries
        return "normalize_by_num_entries counts what is not NaN" if by_data else ""

    def forward(self, *bottoms: Tensor) -> Tensor:
        param = self.param
        differences = bottoms[0] if len(bottoms) == 1 else bottoms[0] - bottoms[1]
        there = ~differences.isnan()
        number: Tensor | int = len(differences)
        if param.normalize_by_num_entries:
            number = there.sum()
        if param.l2_per_location:
            differences = torch.where(there, differences, 0)
            squares = differences.square().sum(1) / (differences.shape[1] if param.l2_prescale_by_channels else 1)
            squares = torch.where(squares < param.plateau**2, 0, squares)
            losses = (squares + param.epsilon).sqrt()
        else:
            counts = there & ~(differences.abs() < param.plateau)
            differences = torch.where(counts, differences, 0)
            losses = torch.where(differences > 0, differences, -differences)
        if not param.normalize_by_num_entries:
            return losses.sum() / self.divisor(number)
        return losses.sum() * differences.shape[1] / self.divisor(number)


def _check_equal(spec: LayerSpec, bottoms: Sequence[Shape]) -> None:
    if any(bottom[:1] != bottoms[0][:1] or count(bottom) != count(bottoms[0]) for bottom in bottoms[1:]):
        raise spec.error(f"needs bottoms of one shape: {show_bottoms(spec, bottoms)}", "bottom")


@LAYERS.register("SmoothL1Loss")
class SmoothL1Loss(Loss):
    """``1 / N · Σ w_out · f(w_in · (x - target))``.

    ``f(d)`` is ``(σ d)² / 2`` where ``|d| < 1 / σ²``, else ``|d| - 1 / 2σ²``. ``σ`` is ``sigma`` (1). Bottoms:
    predictions and targets, of N samples and one shape. Optional weights, which get no diff, default to 1: the third
    bottom has the inside ones (Fast R-CNN's), the fourth the outside ones. (Girshick, *Fast R-CNN*, 2015, eq. 3; both
    weights are from Ren et al., *Faster R-CNN*, 2015.)
    """

    arity = Arity(bottoms=(2, 4), auto_tops=True)
    reads = frozenset()
    bottoms_without_diff = (2, 3)

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        self.beta = 1 / spec.param.smooth_l1_loss_param.sigma**2

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        if not spec.param.smooth_l1_loss_param.sigma > 0:
            raise spec.error("sigma must be above 0", "smooth_l1_loss_param", "sigma")
        _check_equal(spec, bottoms)
        return super().infer(spec, bottoms)

    def forward(self, *bottoms: Tensor) -> Tensor:
        x, target, *weights = (bottom.reshape(bottoms[0].shape) for bottom in bottoms)
        losses = smooth_l1(x - target, weights[0] if weights else None, self.beta)
        return (losses * weights[1] if len(weights) == 2 else losses).sum() / self.divisor(len(x))


@LAYERS.register("SmoothL1LossOHEM")
class SmoothL1LossOHEM(Loss):
    """``Σ f(w · (x - target))``, with ``f`` of SmoothL1Loss and ``σ = 1``, and on demand the loss of each region.

    Bottoms: predictions and targets ``(N, C, …)`` and optional weights, which get no diff. ``loss_param`` says what
    divides the sum; the default is the number of samples and places. The second top, ``(N, 1, …)``, has the loss of
    each place, summed over the channels, and no diff; BoxAnnotatorOHEM chooses by it. (From R-FCN's Caffe; Shrivastava
    et al., *Training Region-based Object Detectors with Online Hard Example Mining*, 2016.)
    """

    arity = Arity(bottoms=(2, 3), tops=(1, 2), auto_tops=True)
    settings = "loss_param"
    bottoms_without_diff = (2,)

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        _check_equal(spec, bottoms)
        shape = bottoms[0]
        if len(shape) < 2:
            raise spec.error(f"needs predictions (N, C, …): {show_bottoms(spec, bottoms)}", "bottom")
        tops = super().infer(spec, bottoms).tops
        each = (shape[0], 1, *(shape[2:] or (1, 1)))
        return LayerShapes((*tops, each) if len(spec.tops) == 2 else tops)

    @classmethod
    def counts_by_data(cls, spec: LayerSpec) -> str:
        return ""

    def forward(self, *bottoms: Tensor) -> Tensor | tuple[Tensor, ...]:
        x, target, *weights = (bottom.reshape(bottoms[0].shape) for bottom in bottoms)
        losses = smooth_l1(x - target, weights[0] if weights else None, 1.0)
        places = len(x) * count(x.shape[2:])
        loss = losses.sum() / self.normalizer(len(x), places, places)
        if len(self.spec.tops) < 2:
            return loss
        each = losses.detach().sum(1, keepdim=True)
        return loss, each if each.dim() > 2 else each.view(*each.shape, 1, 1)


def smooth_l1(differences: Tensor, weights: Tensor | None, beta: float) -> Tensor:
    """Return ``f`` of each difference times its weight: torch's ``smooth_l1_loss``, whose ``beta`` is ``1 / σ²``."""
    differences = differences if weights is None else differences * weights
    return functional.smooth_l1_loss(differences, torch.zeros_like(differences), reduction="none", beta=beta)
