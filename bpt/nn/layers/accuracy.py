"""Accuracy and SegAccuracy: how many labels the best scores predict."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import torch
from torch import Tensor

from bpt.base.errors import DataError
from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_spec import Arity, LayerShapes, LayerSpec, Shape, count
from bpt.nn.kernels.recording import plain_shape
from bpt.nn.layers.axes import canonical_axis, show_bottoms
from bpt.nn.layers.base import ALL_BOTTOMS, LAYERS, Family, Layer
from bpt.nn.layers.labels import (
    Classifying,
    are_distributions,
    are_within,
    by_class,
    check_label_count,
    class_indices,
    places_of,
)
from bpt.nn.layers.loss import at_least_1
from bpt.nn.pass_context import PassContext


@LAYERS.register("Accuracy")
class Accuracy(Classifying, Layer):
    """The share of predictions whose label is among the ``accuracy_param { top_k }`` (default 1) best scores.

    A score equal to the label's counts as better, so a net with equal scores everywhere has accuracy 0. So does a NaN
    score. Without labels, or with ignored ones only, the accuracy is 0.

    Bottoms: scores with the classes along ``axis`` (default 1), and one label for each of the other positions. The
    second bottom may also have the scores' shape and hold distributions; the label is then the most probable class.
    Tops: the accuracy and, if named, that of each class. The layer never runs backward. With many ranks the tops are
    this rank's summands of the whole batch's.

    Raises:
        DataError: in ``forward``, for a label that is neither a class nor ``ignore_label``.
    """

    arity = Arity(bottoms=(2, 2), tops=(1, 2))
    sums_over_samples = 2
    family = Family.LOSS
    flops_per_bottom = 2  # compare, count
    bottoms_without_diff = ALL_BOTTOMS

    @classmethod
    def in_words(cls, layer: pb.LayerParameter, axes: int) -> Sequence[str]:
        return (f"top {layer.accuracy_param.top_k}",) if layer.accuracy_param.top_k > 1 else ()

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        param = spec.param.accuracy_param
        axis = canonical_axis(spec, param.axis, bottoms[0], "accuracy_param", "axis")
        if not are_distributions(bottoms[0], bottoms[1], axis):
            check_label_count(spec, bottoms, axis)
        classes = bottoms[0][axis]
        if not 1 <= param.top_k <= classes:
            raise spec.error(
                f"top_k {param.top_k} is outside [1, {classes}], the classes along axis {axis} of bottom "
                f"{show_bottoms(spec, bottoms[:1])}",
                "accuracy_param",
                "top_k",
            )
        return LayerShapes(((), (classes,))[: len(spec.tops)])

    @classmethod
    def mixes_samples(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> str:
        axis = canonical_axis(spec, spec.param.accuracy_param.axis, bottoms[0], "accuracy_param", "axis")
        along_samples = "" if axis else "its classes are along axis 0, the samples"
        return super().mixes_samples(spec, bottoms) or along_samples

    @classmethod
    def counts_by_data(cls, spec: LayerSpec) -> str:
        if len(spec.tops) == 2:
            return "its second top counts the labels of each class"
        left_out = spec.param.accuracy_param.HasField("ignore_label")
        return "accuracy_param { ignore_label } leaves labels out" if left_out else ""

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        param = spec.param.accuracy_param
        self.axis, self.top_k = param.axis, param.top_k
        self.ignore_label = param.ignore_label if param.HasField("ignore_label") else None
        self.gives_classes = len(spec.tops) == 2

    @torch.no_grad()
    def forward(self, *bottoms: Tensor) -> Tensor | tuple[Tensor, ...]:
        scores = by_class(bottoms[0], self.axis)
        if are_distributions(plain_shape(bottoms[0]), plain_shape(bottoms[1]), self.axis):
            labels = by_class(bottoms[1], self.axis).argmax(1)
        else:
            labels = class_indices(self.spec, bottoms[1], scores, self.ignore_label)
        counts = torch.ones_like(labels) if self.ignore_label is None else (labels != self.ignore_label).long()
        number = labels.numel() if self.ignore_label is None else counts.sum()
        labels = labels * counts  # an ignored label need not be a class
        right = (places_of(scores, labels) < self.top_k) & (counts > 0)
        accuracy = right.sum().to(scores.dtype) / at_least_1(self.of_whole_batch(number))
        if not self.gives_classes:
            return accuracy
        counts_by_class = self.of_whole_batch(_per_class(labels, counts, scores))
        return accuracy, _per_class(labels, right, scores) / at_least_1(counts_by_class)


def _per_class(labels: Tensor, values: Tensor, scores: Tensor) -> Tensor:
    """Return for each class the sum of ``values`` over its labels."""
    sums = scores.new_zeros(scores.shape[1])
    return sums.scatter_add_(0, labels.flatten(), values.flatten().to(sums.dtype))


FIELD = "seg_accuracy_param"
TOP = (1, 1, 1, 3)


@LAYERS.register("SegAccuracy")
class SegAccuracy(Layer):
    """The accuracy of all pixels, the mean recall of the classes that occur, and the mean IoU of all classes.

    Bottoms: scores ``(N, classes, H, W)`` and labels ``(N, 1, H, W)``. Pixels with an ``ignore_label``, of which there
    may be several, do not count. Of equal scores the first one is the answer. With one channel, a score above 0.5 means
    class 1, otherwise class 0. IoU is the number of pixels that are rightly of a class over those that are or should
    be. It is 1 for a class that occurs nowhere. Top: these three numbers, ``(1, 1, 1, 3)``. Each ``output_label``, a
    class, gives a further top with its precision, recall and IoU. Under ``reset: false`` batches add up. (From
    DeepLab's and PSPNet's Caffe.)

    Under ``metric`` (SegNet's Caffe) the first top is one of the three numbers alone, ``(1,)``.
    """

    arity = Arity(bottoms=(2, 2), tops=(1, None))
    sums_over_samples = sys.maxsize  # all tops
    repeatable = False
    family = Family.LOSS
    bottoms_without_diff = ALL_BOTTOMS

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        param = spec.param.seg_accuracy_param
        self.ignored, self.shown, self.resets = tuple(param.ignore_label), tuple(param.output_label), param.reset
        self.metric = param.metric if param.HasField("metric") else None
        self.confusions: Tensor | None = None

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        scores, labels = bottoms
        if len(scores) != 4 or scores[1] < 1 or count(labels) != count(scores) // max(scores[1], 1):
            raise spec.error(
                f"needs scores (N, classes, H, W) and a label for each pixel: {show_bottoms(spec, bottoms)}", "bottom"
            )
        shown = spec.param.seg_accuracy_param.output_label
        if len(spec.tops) != 1 + len(shown):
            raise spec.error(
                f"has one top, and one for each output_label: {1 + len(shown)}, given {len(spec.tops)}", "top"
            )
        for index, label in enumerate(shown):
            if not 0 <= label < max(scores[1], 2):
                raise spec.error(f"output_label {label} is not a class", FIELD, "output_label", index)
        first = (1,) if spec.param.seg_accuracy_param.HasField("metric") else TOP
        return LayerShapes((first, *(TOP,) * len(shown)))

    @classmethod
    def counts_by_data(cls, spec: LayerSpec) -> str:
        return "it counts the pixels of each class"

    @torch.no_grad()
    def forward(self, *bottoms: Tensor) -> Tensor | tuple[Tensor, ...]:
        own = self._count(*bottoms).double()
        if not self.resets:
            own = own if self.confusions is None else own + self.confusions
            self.confusions = own
        # This rank's numbers are divided by those of all ranks, so that the results of the ranks add up.
        whole = self.of_whole_batch(own.clone())
        assert isinstance(whole, Tensor)
        right, rows, columns = own.diagonal(), whole.sum(1), whole.sum(0)
        union = rows + columns - whole.diagonal()
        iou = torch.where(union > 0, right / union, 1 / self.context.ranks)
        recall = torch.where(rows > 0, right / rows, 0).sum() / (rows > 0).sum().clamp(min=1)
        accuracy = right.sum() / whole.sum().clamp(min=1)
        tops = [torch.stack((accuracy, recall, iou.mean()))]
        tops += [torch.stack((right[i] / columns[i], right[i] / rows[i], iou[i])) for i in self.shown]
        shaped = tuple(top.to(bottoms[0].dtype).view(TOP) for top in tops)
        if self.metric is not None:
            shaped = (shaped[0].flatten()[self.metric : self.metric + 1], *shaped[1:])
        return shaped[0] if len(shaped) == 1 else shaped

    def _count(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Return how many pixels of each class (row) get each answer (column)."""
        classes = max(scores.shape[1], 2)
        answers = (scores > 0.5).long().flatten() if scores.shape[1] == 1 else scores.max(1).indices.flatten()
        truth = labels.long().flatten()
        counted = torch.ones_like(truth, dtype=torch.bool)
        for label in self.ignored:
            counted &= truth != label
        truth, answers = truth[counted], answers[counted]
        if not are_within(truth, classes):
            wrong = truth[(truth < 0) | (truth >= classes)][0].item()
            raise DataError(
                f'layer "{self.spec.name}": label {wrong} of "{self.spec.bottom_names[1]}" is outside [0, {classes}), '
                f'the classes of "{self.spec.bottom_names[0]}"; correct the labels, or name it as ignore_label'
            )
        return (truth * classes + answers).bincount(minlength=classes**2).view(classes, classes)
