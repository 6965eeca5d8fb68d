"""EuclideanLoss: half the mean squared distance of two blobs."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor
from torch.nn import functional

from bpt.graph.layer_spec import LayerShapes, LayerSpec, Shape, count
from bpt.nn.layers.axes import show_bottoms
from bpt.nn.layers.base import LAYERS
from bpt.nn.layers.loss import Loss


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
