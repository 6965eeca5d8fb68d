"""L1Loss: the distance of a flow from its target (of FlowNet's Caffe)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from bpt.graph.layer_spec import Arity, LayerShapes, LayerSpec, Shape
from bpt.nn.layers.axes import show_bottoms
from bpt.nn.layers.base import LAYERS
from bpt.nn.layers.loss import Loss
from bpt.nn.pass_context import PassContext

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
        apart = bottoms[0] if len(bottoms) == 1 else bottoms[0] - bottoms[1]
        there = ~apart.isnan()
        number: Tensor | int = len(apart)
        if param.normalize_by_num_entries:
            number = there.sum()
        if param.l2_per_location:
            apart = torch.where(there, apart, 0)
            squares = apart.square().sum(1) / (apart.shape[1] if param.l2_prescale_by_channels else 1)
            squares = torch.where(squares < param.plateau**2, 0, squares)
            losses = (squares + param.epsilon).sqrt()
        else:
            counts = there & ~(apart.abs() < param.plateau)
            apart = torch.where(counts, apart, 0)
            losses = torch.where(apart > 0, apart, -apart)
        if not param.normalize_by_num_entries:
            return losses.sum() / self.divisor(number)
        return losses.sum() * apart.shape[1] / self.divisor(number)
