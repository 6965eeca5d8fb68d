"""TripletLoss: features of one kind closer to each other than to those of another kind."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from bpt.graph.layer_spec import Arity, LayerShapes, LayerSpec, Shape, count
from bpt.nn.layers.axes import show_bottoms
from bpt.nn.layers.base import LAYERS
from bpt.nn.layers.loss import Loss
from bpt.nn.pass_context import PassContext


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

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        self.margin = spec.param.triplet_loss_param.margin

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        if len(bottoms) == 2:
            raise spec.error(
                "is here the TripletLoss with three bottoms, anchors, positives and negatives; with two, features and "
                "triplets or labels, Caffe's forks mean different things. Slice the features into three blobs",
                "bottom",
            )
        if any(shape[:1] != bottoms[0][:1] or not shape or count(shape) != count(bottoms[0]) for shape in bottoms):
            raise spec.error(f"needs three bottoms of equally many features: {show_bottoms(spec, bottoms)}", "bottom")
        return super().infer(spec, bottoms)

    def forward(self, *bottoms: Tensor) -> Tensor:
        anchors, positives, negatives = (bottom.reshape(len(bottom), count(bottom.shape[1:])) for bottom in bottoms)
        near, far = ((anchors - other).square().sum(1) for other in (positives, negatives))
        return (self.margin + near - far).clamp(min=0).sum() / (2 * self.divisor(len(anchors)))
