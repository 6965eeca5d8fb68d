"""Losses with one label for each sample: Caffe's old ones, which know of no other axes."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from bpt.graph.spec import LayerShapes, LayerSpec, Shape, count
from bpt.layers.axes import show_bottoms
from bpt.layers.loss import Loss


class SampleLoss(Loss):
    """Bottoms: ``(N, classes)``, of which later axes are flattened, and N labels, all of which count.

    Raises:
        DataError: in ``forward``, for a label that is not a class.
    """

    reads = frozenset()

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        scores, labels = bottoms
        if not scores or labels[:1] != scores[:1] or count(labels[1:]) != 1:
            raise spec.error(f"needs one label for each sample (axis 0): {show_bottoms(spec, bottoms)}", "bottom", 1)
        return super().infer(spec, bottoms)


def by_sample(scores: Tensor) -> Tensor:
    """``scores`` as (samples, classes): all axes from 1 on are classes."""
    return scores.reshape(scores.shape[0], count(scores.shape[1:]))
