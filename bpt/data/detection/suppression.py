"""Non-maximum suppression keeps only the box with the best score of boxes that overlap."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from bpt.data.detection.boxes import jaccard

ALL = -1
ADAPTS_ABOVE = 0.5
"""``eta`` does not change a threshold that is not above this."""


class Suppression(NamedTuple):
    """The rule that keeps or drops boxes of one class (SSD: ``nms_param``).

    Attributes:
        threshold: boxes that overlap a better one by more than this (Jaccard) are dropped.
        top_k: number of best boxes to consider; ALL: all.
        eta: if below 1, factor for ``threshold`` after each box that is kept, as long as the threshold is above 0.5.
    """

    threshold: float
    top_k: int = ALL
    eta: float = 1.0

    def best(self, scores: Tensor, least: float = -torch.inf) -> Tensor:
        """Return the indices of the ``scores`` (P,) above ``least``, the best first, at most ``top_k``."""
        found = (scores > least).nonzero().squeeze(1)
        order = found[scores[found].argsort(descending=True, stable=True)]
        return order if self.top_k == ALL else order[: self.top_k]

    def select(self, boxes: Tensor) -> Tensor:
        """Return the ascending indices of the ``boxes`` (K, 4), the best first, that are kept."""
        if self.eta < 1 and self.threshold > ADAPTS_ABOVE:
            return self._select_adaptively(boxes)
        near = (jaccard(boxes, boxes) > self.threshold).cpu().numpy()
        left = np.ones(len(boxes), np.bool_)
        kept: list[int] = []
        for index in range(len(boxes)):
            if left[index]:
                kept.append(index)
                left &= ~near[index]
        return torch.tensor(kept, dtype=torch.long, device=boxes.device)

    def _select_adaptively(self, boxes: Tensor) -> Tensor:
        kept: list[int] = []
        threshold = self.threshold
        for index in range(len(boxes)):
            if (jaccard(boxes[index : index + 1], boxes[kept]) > threshold).any():
                continue
            kept.append(index)
            if threshold > ADAPTS_ABOVE:
                threshold *= self.eta
        return torch.tensor(kept, dtype=torch.long, device=boxes.device)


def detect(boxes: Tensor, scores: Tensor, background: int, least: float, nms: Suppression, keep: int) -> Tensor:
    """Return the detections in one image: rows (label, score, xmin, ymin, xmax, ymax), (K, 6).

    The rows are sorted by label, then by descending score.

    Args:
        boxes: (P, 4), or (P, classes, 4) if each class has its own boxes.
        scores: (P, classes).
        background: the class that is not an object; -1: none.
        least: only scores above this count.
        keep: largest number of detections of all classes, those with the best scores; ALL: all.
    """
    rows = []
    for label in range(scores.shape[1]):
        if label == background:
            continue
        found = nms.best(scores[:, label], least)
        if not len(found):
            continue
        own = boxes[found] if boxes.dim() == 2 else boxes[found, label]
        kept = nms.select(own)
        numbers = scores.new_full((len(kept), 1), label)
        rows.append(torch.cat((numbers, scores[found[kept], label, None], own[kept]), 1))
    if not rows:
        return boxes.new_empty((0, 6))
    all_rows = torch.cat(rows)
    if ALL < keep < len(all_rows):
        best = all_rows[:, 1].argsort(descending=True, stable=True)[:keep]
        all_rows = all_rows[best.sort().values]
    return all_rows


def best_of_equals_last(scores: Tensor) -> Tensor:
    """Return the indices of the ``scores`` (K,) above -inf, the best first, and the last first of equal ones.

    That is the order of Caffe's Proposal, which sorts pairs of score and index.
    """
    found = (scores > -torch.inf).nonzero().squeeze(1)
    own = scores[found]
    return found[len(own) - 1 - own.flip(0).argsort(descending=True, stable=True)]


def non_maximum_suppression(boxes: Tensor, overlap: float, most: int) -> Tensor:
    """Return the indices of at most ``most`` of ``boxes`` (K, 4) that no better box overlaps by more than ``overlap``.

    ``boxes`` are in the order of their scores, the best first. The overlap is intersection over union. Corners are
    pixels inside the box. The indices are ascending.
    """
    kept: list[int] = []
    areas = (boxes[:, 2:] - boxes[:, :2] + 1).prod(1)
    left = torch.arange(len(boxes), device=boxes.device)
    while len(left) and len(kept) < most:
        best, left = int(left[0]), left[1:]
        kept.append(best)
        upper, lower = boxes[left, :2].maximum(boxes[best, :2]), boxes[left, 2:].minimum(boxes[best, 2:])
        common = (lower - upper + 1).clamp(min=0).prod(1)
        left = left[common / (areas[left] + areas[best] - common) <= overlap]
    return torch.tensor(kept, dtype=torch.long, device=boxes.device)
