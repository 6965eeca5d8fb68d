"""DetectionEvaluate: decides which of the detected objects are right."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from bpt.data.detection.evaluation import COLUMNS, evaluate
from bpt.data.detection.truth import ROW
from bpt.graph.layer_spec import Arity, LayerShapes, LayerSpec, Shape
from bpt.nn.layers.axes import show_bottoms
from bpt.nn.layers.base import ALL_BOTTOMS, LAYERS, Family, Layer
from bpt.nn.pass_context import PassContext

FIELD = "detection_evaluate_param"
DETECTION = 7


@LAYERS.register("DetectionEvaluate")
class DetectionEvaluate(Layer):
    """Rows of five, ``(1, 1, classes + found, 5)``, from which a test computes the mean average precision.

    The first rows are (-1, label, objects, -1, -1) for each class but ``background_label_id``. Then follows (image,
    label, score, right, wrong) for each detection, with 0 or 1. A detection is right if it overlaps, by at least
    ``overlap_threshold`` (Jaccard), an object of its label that no better detection of this image has taken. Without
    ``evaluate_difficult_gt`` difficult objects do not count, and their detections are neither right nor wrong.

    Bottoms: detections ``(1, 1, found, 7)`` as DetectionOutput makes them, objects ``(1, 1, objects, 8)`` as
    AnnotatedData does. The layer never runs backward. From SSD's Caffe.
    """

    arity = Arity(bottoms=(2, 2))
    listed = (0,)
    no_collectives = True
    family = Family.LOSS
    bottoms_without_diff = ALL_BOTTOMS

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        param = spec.param.detection_evaluate_param
        self.classes, self.background = param.num_classes, param.background_label_id
        self.threshold, self.count_difficult = param.overlap_threshold, param.evaluate_difficult_gt

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        param = spec.param.detection_evaluate_param
        if not param.num_classes:
            raise spec.error(f"{FIELD} needs num_classes, with that of the background", FIELD, "num_classes")
        if not param.overlap_threshold > 0:
            raise spec.error("overlap_threshold must be above 0", FIELD, "overlap_threshold")
        if [shape[-1:] for shape in bottoms] != [(DETECTION,), (ROW,)]:
            raise spec.error(
                f"needs detections (…, {DETECTION}) and objects (…, {ROW}): {show_bottoms(spec, bottoms)}", "bottom"
            )
        classes = param.num_classes - (param.background_label_id < param.num_classes)
        return LayerShapes(((1, 1, classes + 1, COLUMNS),))

    @classmethod
    def mixes_samples(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> str:
        return ""  # rows name their image

    @torch.no_grad()
    def forward(self, *bottoms: Tensor) -> Tensor:
        found, objects = bottoms[0].reshape(-1, DETECTION), bottoms[1].reshape(-1, ROW)
        return evaluate(found, objects, self.classes, self.background, self.threshold, self.count_difficult)[None, None]
