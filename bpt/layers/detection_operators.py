"""DetectionOutput as a single operator of a program that ``torch.export`` writes down.

How many objects there are depends on the numbers, of which a program knows nothing; and ONNX has NonMaxSuppression.
torch runs a program with it where this file is imported.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from bpt.detection.suppression import Suppression, detect


def _detect(
    boxes: Tensor, scores: Tensor, background: int, least: float, threshold: float, top_k: int, keep: int
) -> Tensor:
    found = detect(boxes, scores, background, least, Suppression(threshold, top_k), keep)
    if not len(found):
        found = boxes.new_full((1, 6), -1)
    return torch.cat((found.new_zeros((len(found), 1)), found), 1)[None, None]


def _shape_only(boxes: Tensor, scores: Tensor, *numbers: float) -> Tensor:
    found = torch.library.get_ctx().new_dynamic_size()
    return boxes.new_empty(1, 1, found, 7)


_ARGUMENTS = "Tensor boxes, Tensor scores, int background, float least, float threshold, int top_k, int keep"
_DETECT = torch.library.custom_op("bpt::detect", _detect, mutates_args=(), schema=f"({_ARGUMENTS}) -> Tensor")
_DETECT.register_fake(_shape_only)

detect_in_one: Callable[[Tensor, Tensor, int, float, float, int, int], Tensor] = _DETECT
"""Of boxes (P, 4) and scores (P, classes) of one image the rows of DetectionOutput: ``(1, 1, found, 7)``."""
