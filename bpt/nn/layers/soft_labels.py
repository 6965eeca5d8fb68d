"""Labels that are not single classes: smoothed labels, distributions over the classes, and weights of labels."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from bpt.graph.layer_spec import LayerSpec, Shape, count
from bpt.nn.layers.axes import show_bottoms


def are_distributions(scores: Sequence[int], labels: Sequence[int], axis: int) -> bool:
    """Return whether labels have the shape of scores, so that each position has a distribution along ``axis``."""
    return tuple(scores) == tuple(labels) and count(labels) > 0 and scores[axis] > 1


def check_settings(spec: LayerSpec, bottoms: Sequence[Shape], axis: int) -> None:
    """Check the settings of ``loss_param`` and the shape of the weights against the scores.

    Raises:
        LayerError: a setting makes no sense for scores of this shape, or the third bottom has no weight for each
            position.
    """
    param, classes = spec.param.loss_param, bottoms[0][axis]
    if not 0 <= param.label_smoothing < 1:
        raise spec.error(
            f"label_smoothing is {param.label_smoothing:g}; it must be at least 0 and below 1",
            "loss_param",
            "label_smoothing",
        )
    if param.label_smoothing and classes < 2:
        raise spec.error("label_smoothing needs at least two classes", "loss_param", "label_smoothing")
    if len(bottoms) == 3 and count(bottoms[2]) * classes != count(bottoms[0]):
        raise spec.error(f"needs a weight for each label: {show_bottoms(spec, bottoms)}", "bottom", 2)


def cross_entropies(losses: Tensor, labels: Tensor, smoothing: float, weights: Tensor | None) -> Tensor:
    """Return ``Σ_c q_c · w_c · losses_c`` for each position.

    Args:
        losses: ``-log p`` of each class, along axis 1.
        labels: classes, int64, without axis 1; or distributions q, in the shape of ``losses``. A class becomes a
            distribution: the label has ``1 - smoothing``, and the other classes share the rest equally (NVIDIA's
            Caffe).
        smoothing: the part of a label's weight that the other classes share, 0 to 1.
        weights: a weight for each class; ``None`` means 1 for all.
    """
    if weights is not None:
        losses = losses * weights.view(1, -1, *(1,) * (losses.dim() - 2))
    if labels.dim() == losses.dim():
        if smoothing:  # of a distribution, each part of it is smoothed
            other = smoothing / (losses.shape[1] - 1)
            labels = labels * (1 - smoothing - other) + other * labels.sum(1, keepdim=True)
        return (losses * labels).sum(1)
    own = losses.gather(1, labels.unsqueeze(1)).squeeze(1)
    if not smoothing:
        return own
    return (1 - smoothing) * own + smoothing / (losses.shape[1] - 1) * (losses.sum(1) - own)
