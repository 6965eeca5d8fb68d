"""What DetectionOutput and Proposal choose, as single operators of a program that ``torch.export`` writes down.

How many boxes that are depends on the numbers, of which a program knows nothing; and ONNX has NonMaxSuppression.
torch runs a program with them where this file is imported.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from bpt.data.detection.suppression import Suppression, best_of_equals_last, detect, non_maximum_suppression

COLUMNS = 7
"""Of a detection: image, label, score, xmin, ymin, xmax, ymax."""


def detected(boxes: Tensor, scores: Tensor, background: int, least: float, nms: Suppression, keep: int) -> Tensor:
    """Return the rows of DetectionOutput: (1, 1, found, 7); a row of -1 for each image if nothing is found in any.

    Args:
        boxes: (N, P, 4), or (N, P, classes, 4).
        scores: (N, P, classes).
        background, least, nms, keep: as of ``detect``.
    """
    parts = []
    for image, candidates in enumerate(zip(boxes, scores, strict=True)):
        found = detect(*candidates, background, least, nms, keep)
        parts.append(torch.cat((found.new_full((len(found), 1), image), found), 1))
    rows = torch.cat(parts) if parts else boxes.new_empty((0, COLUMNS))
    if not len(rows):
        rows = boxes.new_full((len(boxes), COLUMNS), -1)
        rows[:, 0] = torch.arange(len(boxes))
    return rows[None, None]


def _detect(
    boxes: Tensor, scores: Tensor, background: int, least: float, threshold: float, top_k: int, keep: int
) -> Tensor:
    return detected(boxes, scores, background, least, Suppression(threshold, top_k), keep)


def _detections(boxes: Tensor, scores: Tensor, *numbers: float) -> Tensor:
    return boxes.new_empty(1, 1, torch.library.get_ctx().new_dynamic_size(), COLUMNS)


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
"""``detected``, of boxes (N, P, 4), or (N, P, classes, 4), and scores (N, P, classes)."""
propose_in_one: Callable[[Tensor, Tensor, int, float, int], Tensor] = _PROPOSE
"""Of boxes in pixels (N, K, 4) and scores (N, K) those that are proposed, the image and the place of each: (found, 2).

Of the ``before`` best above -inf at most ``most`` of each image that overlap no better one by more.
"""
