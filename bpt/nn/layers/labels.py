"""Labels and other indices, which arrive as floats, and labels that are distributions over classes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from bpt.base.errors import DataError
from bpt.graph.layer_spec import LayerSpec, Shape, count
from bpt.nn.kernels.recording import is_compiling_or_tracing
from bpt.nn.layers.axes import show_bottoms
from bpt.nn.layers.label_guard import active_guard


def row_indices(spec: LayerSpec, indices: Tensor, bottom: int, rows: int, table: str) -> Tensor:
    """Return ``indices`` as int64, truncated as in Caffe, in their shape.

    Args:
        bottom: the place of the bottom that holds them.
        rows: the number of rows.
        table: the owner of the rows, for the message: ``'the samples of "x"'``.

    Raises:
        DataError: an index is outside [0, ``rows``).
    """
    whole = indices.long()
    if not are_within(whole, rows):
        place = int(((whole < 0) | (whole >= rows)).flatten().nonzero()[0])
        raise DataError(
            f'layer "{spec.name}": index {indices.flatten()[place].item():g} at position {place} of '
            f'"{spec.bottom_names[bottom]}" is outside [0, {rows}), {table}'
        )
    return whole


def are_within(indices: Tensor, number: int) -> bool:
    """Return whether all of these integers are in [0, ``number``).

    It reads only the least and the greatest; on a GPU, the host waits for these two. A program that is being written
    cannot branch on data. There the answer is yes, and torch refuses others when the program runs.
    """
    if is_compiling_or_tracing() or not indices.numel():
        return True
    low, high = torch.stack(indices.aminmax()).tolist()
    return bool(low >= 0 and high < number)


class Classifying:
    """The common part of layers that compare scores of classes, the first bottom, with labels, the second.

    Attributes:
        axis: the axis of the scores along which the classes are.
        ignore_label: positions with this label do not count.
    """

    axis: int
    ignore_label: int | None


def check_label_count(spec: LayerSpec, bottoms: Sequence[Shape], axis: int) -> None:
    """Raise a LayerError unless there is one label for each prediction along ``axis`` of the first bottom."""
    scores = bottoms[0]
    wanted = count(scores[:axis]) * count(scores[axis + 1 :])
    given = count(bottoms[1])
    if given != wanted:
        raise spec.error(
            f"number of labels ({given}) must match number of predictions ({wanted}): {show_bottoms(spec, bottoms)}. "
            "If the axis of the classes is 1 and predictions are (N, C, H, W), there must be N*H*W labels, "
            "integers in 0 ... C-1",
            "bottom",
            1,
        )


def by_class(scores: Tensor, axis: int) -> Tensor:
    """Return ``scores`` as (outer, classes, inner), or (outer, classes) where inner is 1; ``axis`` has the classes."""
    axis %= scores.dim()
    outer, inner = count(scores.shape[:axis]), count(scores.shape[axis + 1 :])
    classes = scores.shape[axis]
    return scores.reshape(outer, classes) if inner == 1 else scores.reshape(outer, classes, inner)


def places_of(scores: Tensor, labels: Tensor) -> Tensor:
    """Return how many other classes have a score at least as good as the label's, in the shape of ``labels``.

    So ties count against a net, and a net with equal scores is never right. Where the label's score is NaN, the result
    is more than the number of others: the number of classes.

    Args:
        scores: as ``by_class`` returns them.
        labels: classes, int64, in the shape of ``scores`` without its axis 1.
    """
    own = scores.gather(1, labels.unsqueeze(1))
    others = (scores < own).logical_not_().sum(1) - 1
    return others.masked_fill_(own.squeeze(1).isnan(), scores.shape[1])


def class_indices(spec: LayerSpec, labels: Tensor, scores: Tensor, ignore_label: int | None) -> Tensor:
    """Return the labels as int64, truncated as in Caffe, in the shape of ``scores`` without its axis 1.

    Args:
        labels: labels in any shape of the right count.
        scores: as ``by_class`` returns them.

    Raises:
        DataError: a label is neither a class nor ``ignore_label``. A LabelGuard raises it later.
    """
    classes = scores.shape[1]
    indices = labels.long().reshape(scores.shape[:1] + scores.shape[2:])
    guard = active_guard()
    if guard is not None:
        return guard.admit(spec, indices, classes, ignore_label)
    if not are_within(indices, classes):
        _refuse(spec, labels, indices, classes, ignore_label)
    return indices


def _refuse(spec: LayerSpec, labels: Tensor, indices: Tensor, classes: int, ignore_label: int | None) -> None:
    wrong = (indices < 0) | (indices >= classes)
    if ignore_label is not None:
        wrong &= indices != ignore_label
    places = wrong.flatten().nonzero()
    if len(places):
        place = int(places[0])
        label, (scores, blob) = labels.flatten()[place].item(), spec.bottom_names[:2]
        more = f', or give "{scores}" more classes' if label > 0 else ""
        raise DataError(
            f'layer "{spec.name}": label {label:g} at position {place} of "{blob}" is outside [0, {classes}), the '
            f'classes of "{scores}"; correct the list or data set that "{blob}" comes from{more}'
        )


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
        if smoothing:  # each part of a distribution is smoothed
            other = smoothing / (losses.shape[1] - 1)
            labels = labels * (1 - smoothing - other) + other * labels.sum(1, keepdim=True)
        return (losses * labels).sum(1)
    own = losses.gather(1, labels.unsqueeze(1)).squeeze(1)
    if not smoothing:
        return own
    return (1 - smoothing) * own + smoothing / (losses.shape[1] - 1) * (losses.sum(1) - own)
