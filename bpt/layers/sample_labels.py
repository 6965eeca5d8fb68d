"""Losses with one label for each sample: Caffe's old ones, which know of no other axes."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from bpt.graph.spec import LayerSpec, Shape, count
from bpt.layers.axes import show_bottoms


def check_sample_labels(spec: LayerSpec, bottoms: Sequence[Shape]) -> None:
    """Raise a LayerError unless the second bottom has as many labels as the first has samples (axis 0)."""
    scores, labels = bottoms[:2]
    if not scores or labels[:1] != scores[:1] or count(labels[1:]) != 1:
        raise spec.error(f"needs one label for each sample (axis 0): {show_bottoms(spec, bottoms[:2])}", "bottom", 1)


def by_sample(scores: Tensor) -> Tensor:
    """``scores`` as (samples, classes): all axes from 1 on are classes."""
    return scores.reshape(scores.shape[0], count(scores.shape[1:]))
