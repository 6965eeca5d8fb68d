"""MultinomialLogisticLoss: the logarithm of the label's probability."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from bpt.graph.spec import LayerSpec, Shape, count
from bpt.layers.base import LAYERS
from bpt.layers.clip_forward import clip_forward
from bpt.layers.labels import class_indices
from bpt.layers.sample_labels import SampleLoss, by_sample

LEAST = 1e-20  # Caffe never takes the log of less (kLOG_THRESHOLD)


@LAYERS.register("MultinomialLogisticLoss")
class MultinomialLogisticLoss(SampleLoss):
    """``-1/N · Σ log(max(p[label], 1e-20))``.

    The gradient is ``-1 / max(p[label], 1e-20) / N``, which is vast for a probability of 0, but finite; train
    with SoftmaxWithLoss. Bottoms: probabilities and labels, see ``SampleLoss``.
    """

    @classmethod
    def flops(cls, spec: LayerSpec, bottoms: Sequence[Shape], tops: Sequence[Shape]) -> int:
        return 3 * count(bottoms[1])  # compare, log, add up

    def forward(self, *bottoms: Tensor) -> Tensor:
        probabilities = by_sample(bottoms[0])
        labels = class_indices(self.spec, bottoms[1], probabilities, None)
        own = probabilities.gather(1, labels.unsqueeze(1))
        return -clip_forward(own, LEAST).log().sum() / self.divisor(probabilities.shape[0])
