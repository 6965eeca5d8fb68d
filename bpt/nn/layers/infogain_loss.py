"""InfogainLoss: cross entropy in which a matrix weighs each class for each label."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from bpt.base.errors import BptError
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.binary_files import read_binary
from bpt.config.proto.blobs import FloatArray, blob_to_array
from bpt.graph.layer_spec import Arity, FileKind, LayerShapes, LayerSpec, Shape, count
from bpt.nn.layers.axes import canonical_axis, show_bottoms
from bpt.nn.layers.base import LAYERS
from bpt.nn.layers.labels import by_class, check_label_count, class_indices
from bpt.nn.layers.layer_text import notice
from bpt.nn.layers.loss import Loss, clip_forward
from bpt.nn.layers.softmax import softmax_axis
from bpt.nn.pass_context import PassContext

FIELD = "infogain_loss_param"
LEAST = math.log(1e-20)  # Caffe never takes the log of a probability below 1e-20 (kLOG_THRESHOLD)


@LAYERS.register("InfogainLoss")
class InfogainLoss(Loss):
    """The mean of ``-Σ_k H[label, k] · log(max(p[k], 1e-20))`` over the labels, with ``p`` the softmax of the scores.

    Bottoms: scores of any shape, the classes along ``axis`` (default 1); labels, one for each of the other positions;
    and the matrix ``H`` of classes² numbers, in any shape, unless ``source`` names a BlobProto file with it. Tops: the
    loss and, if named, the probabilities (without a diff). ``loss_param`` says which labels are ignored and what
    divides the sum, as for SoftmaxWithLoss. Only the scores get a diff, which ignores the limit of the log. With the
    identity as ``H`` this is SoftmaxWithLoss.

    Raises:
        DataError: in ``forward``, for a label that is neither a class nor ignored.
    """

    arity = Arity(bottoms=(2, 3), tops=(1, 2), auto_tops=True)
    reads = frozenset({"loss_param", "softmax_param"})
    files = ((f"{FIELD}.source", FileKind.MATRIX),)
    flops_per_bottom = 6  # the softmax, times the matrix's row, added up
    bottoms_without_diff = (1, 2)

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        axis = _axis(spec, bottoms[0])
        check_label_count(spec, bottoms, axis)
        classes = bottoms[0][axis]
        if len(bottoms) == 3:
            if count(bottoms[2]) != classes**2:
                raise spec.error(
                    f"the infogain matrix must have {classes} x {classes} numbers, one for each two classes: "
                    f"{show_bottoms(spec, bottoms)}",
                    "bottom",
                    2,
                )
        elif (numbers := _read(spec).size) != classes**2:
            raise spec.error(
                f'"{spec.param.infogain_loss_param.source}" holds {numbers} numbers, not the {classes} x {classes} '
                f"of an infogain matrix for the classes of {show_bottoms(spec, bottoms[:1])}",
                FIELD,
                "source",
            )
        tops = super().infer(spec, bottoms).tops
        return LayerShapes((*tops, bottoms[0]) if len(spec.tops) == 2 else tops)

    @classmethod
    def mixes_samples(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> str:
        if not _axis(spec, bottoms[0]):
            return "its softmax runs along axis 0, the samples"
        if len(bottoms) == 3:
            return (
                f'bottom "{spec.bottom_names[2]}" {bottoms[2]} is one matrix for all samples '
                f"({FIELD} {{ source }} gives it to all ranks)"
            )
        return super().mixes_samples(spec, bottoms)

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        self.axis = spec.param.infogain_loss_param.axis
        self.gives_probabilities = len(spec.tops) == 2
        self.matrix: Tensor | None
        given = len(spec.bottoms) == 3
        self.register_buffer("matrix", None if given else torch.from_numpy(_read(spec)), persistent=False)
        if given and spec.param.infogain_loss_param.source:
            notice(spec, f'source is not read: the matrix is bottom "{spec.bottom_names[2]}"', FIELD, "source")

    def forward(self, *bottoms: Tensor) -> Tensor | tuple[Tensor, ...]:
        scores = by_class(bottoms[0], self.axis)
        labels = class_indices(self.spec, bottoms[1], scores, self.ignore_label)
        matrix = bottoms[2].detach() if self.matrix is None else self.matrix
        loss = self._loss(scores, labels, matrix)
        if not self.gives_probabilities:
            return loss
        return loss, functional.softmax(scores.detach(), 1).reshape(bottoms[0].shape)

    def _loss(self, scores: Tensor, labels: Tensor, matrix: Tensor) -> Tensor:
        rows = matrix.to(scores).reshape(scores.shape[1], scores.shape[1])
        valid: Tensor | int = labels.numel()
        if self.ignore_label is not None:
            kept = labels != self.ignore_label
            valid = kept.sum()
            # Products would be NaN for inf. This precedes the softmax, whose gradient would be NaN, too.
            scores = torch.where(kept.unsqueeze(1), scores, 0)
            weights = rows[labels * kept]  # an ignored label need not be a class
            weights = torch.where(kept.unsqueeze(-1), weights, 0)
        else:
            weights = rows[labels]
        log_p = functional.log_softmax(scores, 1)
        loss = -(weights.movedim(-1, 1) * clip_forward(log_p, LEAST)).sum()
        return loss / self.normalizer(labels.shape[0], labels.numel(), valid)


def _axis(spec: LayerSpec, scores: Shape) -> int:
    """Return the axis of the classes, counted from 0."""
    axis = canonical_axis(spec, spec.param.infogain_loss_param.axis, scores, FIELD, "axis")
    if softmax_axis(spec, scores) != axis:
        # Caffe computes the softmax along one axis and sums along another, so its gradient is wrong.
        raise spec.error(
            f"{FIELD} {{ axis }} ({axis}) and softmax_param {{ axis }} ({softmax_axis(spec, scores)}) must name the "
            "same axis, that of the classes; set both",
            FIELD,
            "axis",
        )
    return axis


def _read(spec: LayerSpec) -> FloatArray:
    """Return the numbers in the file that ``source`` names."""
    if not spec.param.infogain_loss_param.source:
        raise spec.error("needs the infogain matrix: as a third bottom, or as source, a BlobProto file", FIELD)
    source = spec.param.infogain_loss_param.source
    try:
        return blob_to_array(read_binary(source, pb.BlobProto))
    except BptError as error:
        message = str(error)
        raise spec.error(message if source in message else f"{source}: {message}", FIELD, "source") from None
