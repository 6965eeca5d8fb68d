"""DetectionOutput and DetectionEvaluate: the objects that a net has detected, and which of them are right."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from bpt.config.proto import bpt_pb2 as pb
from bpt.data.detection.boxes import BoxCode, decode
from bpt.data.detection.evaluation import COLUMNS, evaluate
from bpt.data.detection.suppression import ADAPTS_ABOVE, ALL, Suppression
from bpt.data.detection.truth import ROW
from bpt.graph.layer_spec import Arity, LayerShapes, LayerSpec, Shape, count
from bpt.nn.layers.axes import show_bottoms
from bpt.nn.layers.base import ALL_BOTTOMS, LAYERS, Family, Layer, setting
from bpt.nn.layers.detection_operators import DETECTION, detect_in_one, detected
from bpt.nn.layers.graph_tracing import is_exported
from bpt.nn.pass_context import PassContext


@LAYERS.register("DetectionOutput")
class DetectionOutput(Layer):
    """Rows (image, label, score, xmin, ymin, xmax, ymax) of detected objects: top ``(1, 1, found, 7)``.

    They are sorted by image, label and falling score. Boxes are in parts of the image, and may reach beyond it. Without
    any detection there is one row of -1 for each image, after its number. The graph knows one row.

    Bottoms: offsets of objects from the prior boxes ``(N, priors · 4)``, or ``(N, priors · classes · 4)`` without
    ``share_location``; the scores ``(N, priors · num_classes)``, as a Softmax makes them; the prior boxes and their
    variances ``(1, 2, priors · 4)``. A score counts if it is above ``confidence_threshold``. ``nms_param`` says which
    boxes of a class are too near to a better one. ``keep_top_k`` says how many boxes of an image remain (-1: all).

    From SSD's Caffe (Liu et al., *SSD: Single Shot MultiBox Detector*, 2016).
    """

    arity = Arity(bottoms=(3, 3))
    listed = (0,)
    no_collectives = True
    family = Family.LOSS
    bottoms_without_diff = ALL_BOTTOMS

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        param = spec.param.detection_output_param
        nms = param.nms_param
        self.suppression = Suppression(nms.nms_threshold, nms.top_k if nms.HasField("top_k") else ALL, nms.eta)
        self.classes, self.shared = param.num_classes, param.share_location
        self.background, self.keep = param.background_label_id, param.keep_top_k
        self.least = param.confidence_threshold if param.HasField("confidence_threshold") else -torch.inf
        self.code = BoxCode[pb.PriorBoxParameter.CodeType.Name(param.code_type)]
        self.in_target = param.variance_encoded_in_target

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        param = spec.param.detection_output_param
        check_predictions(spec, bottoms, "detection_output_param", param.num_classes, param.share_location)
        if not param.nms_param.nms_threshold >= 0:
            raise spec.error("nms_threshold must be at least 0", "detection_output_param", "nms_param", "nms_threshold")
        if not 0 < param.nms_param.eta <= 1:
            raise spec.error(
                f"eta {param.nms_param.eta:g} is outside (0, 1]", "detection_output_param", "nms_param", "eta"
            )
        return LayerShapes(((1, 1, 1, DETECTION),))

    @classmethod
    def mixes_samples(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> str:
        return super().mixes_samples(spec, [bottoms[0], bottoms[1], bottoms[0]])  # all samples share the priors

    @classmethod
    def flops(cls, spec: LayerSpec, bottoms: Sequence[Shape], tops: Sequence[Shape]) -> int:
        return 4 * count(bottoms[0]) + count(bottoms[1])

    @torch.no_grad()
    def forward(self, *bottoms: Tensor) -> Tensor:
        images = bottoms[0].shape[0]
        priors, variances = bottoms[2][0].reshape(2, -1, 4)
        shape = (images, len(priors)) if self.shared else (images, len(priors), self.classes)
        if not self.shared:
            priors, variances = priors[:, None], variances[:, None]
        offsets = bottoms[0].reshape(*shape, 4)
        boxes = decode(self.code, offsets, priors, None if self.in_target else variances)
        scores = bottoms[1].reshape(images, len(priors), self.classes)
        if is_exported():
            return self._in_one(boxes, scores)
        return detected(boxes, scores, self.background, self.least, self.suppression, self.keep)

    def _in_one(self, boxes: Tensor, scores: Tensor) -> Tensor:
        """Return the rows from a single operator of a program."""
        nms = self.suppression
        if nms.eta < 1 and nms.threshold > ADAPTS_ABOVE:
            raise self.spec.error(
                "can be exported without eta: NonMaxSuppression of ONNX has one threshold", "detection_output_param"
            )
        least = max(self.least, torch.finfo(torch.float32).min)
        return detect_in_one(boxes, scores, self.background, least, nms.threshold, nms.top_k, self.keep)


def check_predictions(spec: LayerSpec, bottoms: Sequence[Shape], field: str, classes: int, shared: bool) -> int:
    """Return the number of prior boxes, from bottoms of offsets, scores and prior boxes.

    Raises:
        LayerError: ``num_classes`` is missing, or the bottoms do not fit together.
    """
    if not classes:
        raise spec.error(f"{field} needs num_classes, with that of the background", field, "num_classes")
    offsets, scores, priors = bottoms[:3]
    if len(priors) < 3 or priors[1] != 2 or count(priors[2:]) % 4:
        raise spec.error(f"needs prior boxes (1, 2, boxes · 4): {show_bottoms(spec, bottoms)}", "bottom", 2)
    boxes = count(priors[2:]) // 4
    each = 4 if shared else 4 * classes
    if not offsets or offsets[:1] != scores[:1]:
        raise spec.error(f"needs equally many samples (axis 0) of both: {show_bottoms(spec, bottoms[:2])}", "bottom")
    if count(offsets[1:]) != boxes * each:
        raise spec.error(
            f"{boxes} prior boxes need {boxes} · {each} numbers for the places of objects, "
            f'"{spec.bottom_names[0]}" {offsets} has {count(offsets[1:])} a sample',
            "bottom",
            0,
        )
    if count(scores[1:]) != boxes * classes:
        raise spec.error(
            f'{boxes} prior boxes need {boxes} · {classes} scores, "{spec.bottom_names[1]}" {scores} has '
            f"{count(scores[1:])} a sample",
            "bottom",
            1,
        )
    return boxes


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
    classes = setting(int, "detection_evaluate_param.num_classes")
    background = setting(int, "detection_evaluate_param.background_label_id")
    threshold = setting(float, "detection_evaluate_param.overlap_threshold")
    count_difficult = setting(bool, "detection_evaluate_param.evaluate_difficult_gt")

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        param = spec.param.detection_evaluate_param
        if not param.num_classes:
            raise spec.error(
                "detection_evaluate_param needs num_classes, with that of the background",
                "detection_evaluate_param",
                "num_classes",
            )
        if not param.overlap_threshold > 0:
            raise spec.error("overlap_threshold must be above 0", "detection_evaluate_param", "overlap_threshold")
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
