"""The choices of DetectionOutput and Proposal as single operators of a program that ``torch.export`` writes.

The number of chosen boxes depends on the data, which a program cannot express. ONNX has NonMaxSuppression for that.
torch can run such a program where this file is imported.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from bpt.data.detection.suppression import Suppression, best_of_equals_last, detect, non_maximum_suppression

DETECTION = 7
"""The columns of a detection: image, label, score, xmin, ymin, xmax, ymax."""


def detected(boxes: Tensor, scores: Tensor, background: int, least: float, nms: Suppression, keep: int) -> Tensor:
    """Return the rows of DetectionOutput, (1, 1, found, 7); a row of -1 for each image if no image has a detection.

    Args:
        boxes: (N, P, 4), or (N, P, classes, 4).
        scores: (N, P, classes).
        background, least, nms, keep: the arguments of ``detect`` with these names.
    """
    parts = []
    for image, candidates in enumerate(zip(boxes, scores, strict=True)):
        found = detect(*candidates, background, least, nms, keep)
        parts.append(torch.cat((found.new_full((len(found), 1), image), found), 1))
    rows = torch.cat(parts) if parts else boxes.new_empty((0, DETECTION))
    if not len(rows):
        rows = boxes.new_full((len(boxes), DETECTION), -1)
        rows[:, 0] = torch.arange(len(boxes))
    return rows[None, None]


def _detect(
    boxes: Tensor, scores: Tensor, background: int, least: float, threshold: float, top_k: int, keep: int
) -> Tensor:
    return detected(boxes, scores, background, least, Suppression(threshold, top_k), keep)


def _detections(boxes: Tensor, scores: Tensor, *numbers: float) -> Tensor:
    return boxes.new_empty(1, 1, torch.library.get_ctx().new_dynamic_size(), DETECTION)


def _propose(boxes: Tensor, scores: Tensor, before: int, overlap: float, most: int) -> Tensor:
    parts = []
    for image, (own, numbers) in enumerate(zip(boxes, scores, strict=True)):
        order = best_of_equals_last(numbers)[:before]
        place = order[non_maximum_suppression(own[order], overlap, most)]
        parts.append(torch.stack((torch.full_like(place, image), place), 1))
    return torch.cat(parts)


def _proposals(boxes: Tensor, scores: Tensor, *numbers: float) -> Tensor:
    return boxes.new_empty(torch.library.get_ctx().new_dynamic_size(), 2, dtype=torch.long)


_BOXES = "Tensor boxes, Tensor scores"
_DETECT = torch.library.custom_op(
    "bpt::detect",
    _detect,
    mutates_args=(),
    schema=f"({_BOXES}, int background, float least, float threshold, int top_k, int keep) -> Tensor",
)
_PROPOSE = torch.library.custom_op(
    "bpt::propose", _propose, mutates_args=(), schema=f"({_BOXES}, int before, float overlap, int most) -> Tensor"
)
_DETECT.register_fake(_detections)
_PROPOSE.register_fake(_proposals)

detect_in_one: Callable[[Tensor, Tensor, int, float, float, int, int], Tensor] = _DETECT
"""The operator of ``detected``, for boxes (N, P, 4), or (N, P, classes, 4), and scores (N, P, classes)."""
propose_in_one: Callable[[Tensor, Tensor, int, float, int], Tensor] = _PROPOSE
"""The operator that chooses proposals: their images and places, (found, 2), from boxes (N, K, 4) and scores (N, K).

Boxes are in pixels. Of the ``before`` best above -inf it chooses at most ``most`` of each image that overlap no
better one by more than ``overlap``.
"""
