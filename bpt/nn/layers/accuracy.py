"""Accuracy: the share of labels among the best scores."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_spec import Arity, LayerShapes, LayerSpec, Shape
from bpt.nn.layers.axes import canonical_axis, show_bottoms
from bpt.nn.layers.base import ALL_BOTTOMS, LAYERS, Family, Layer
from bpt.nn.layers.graph_tracing import plain_shape
from bpt.nn.layers.labels import Classifying, by_class, check_label_count, class_indices, places_of
from bpt.nn.layers.loss import at_least_1
from bpt.nn.layers.soft_labels import are_distributions
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
        along_samples = "" if axis else "its classes stand along axis 0, the samples"
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
