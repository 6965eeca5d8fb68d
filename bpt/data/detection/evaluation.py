"""Evaluation of detections: one is right if it overlaps an object of its label that no better one overlaps."""

from __future__ import annotations

import torch
from torch import Tensor

from bpt.data.detection.boxes import jaccard
from bpt.data.detection.truth import NO_IMAGE

COLUMNS = 5  # (image, label, score, right, wrong), or (-1, label, objects, -1, -1)


def evaluate(
    detections: Tensor, truth: Tensor, classes: int, background: int, threshold: float, count_difficult: bool
) -> Tensor:
    """Compare detections with the true objects, and return rows (K, 5), as SSD's DetectionEvaluate.

    The first rows are (-1, label, number of objects, -1, -1), one for each class. The others are (image, label, score,
    right, wrong), one for each detection, sorted by image, label and, if there are objects of the label, descending
    score. A detection of a difficult object is neither right nor wrong, unless difficult objects count.

    Args:
        detections: rows (image, label, score, xmin, ymin, xmax, ymax): (D, 7); a row with image -1 is no detection.
        truth: rows as in ``bpt.data.detection.truth``: (G, 8).
        threshold: the least overlap of a detection with an object (Jaccard).
        count_difficult: whether difficult objects count as others do.
    """
    truth = truth[truth[:, 0] != NO_IMAGE]
    detections = detections[detections[:, 0] != NO_IMAGE]
    counted = truth if count_difficult else truth[truth[:, 7] == 0]
    labels = [label for label in range(classes) if label != background]
    rows = [
        detections.new_tensor([[-1, label, int((counted[:, 1] == label).sum()), -1, -1] for label in labels]).view(
            -1, COLUMNS
        )
    ]
    pairs = torch.unique(detections[:, :2], dim=0) if len(detections) else detections[:, :2]
    for pair in pairs:  # in the order of images, then labels
        found = detections[(detections[:, :2] == pair).all(1)]
        objects = truth[(truth[:, :2] == pair).all(1)]
        if len(objects):
            found = found[found[:, 2].argsort(descending=True, stable=True)]
        right, wrong = _judge(found[:, 3:], objects, threshold, count_difficult)
        rows.append(torch.cat((found[:, :3], right[:, None], wrong[:, None]), 1))
    return torch.cat(rows)


def _judge(boxes: Tensor, objects: Tensor, threshold: float, count_difficult: bool) -> tuple[Tensor, Tensor]:
    """Return whether each of ``boxes`` (K, 4), the best first, is right, and whether it is wrong, as 0 or 1: (K,)."""
    right, wrong = boxes.new_zeros(len(boxes)), boxes.new_zeros(len(boxes))
    if not len(objects):
        return right, wrong + 1
    overlaps, nearest = jaccard(boxes, objects[:, 3:7]).max(1)
    taken: set[int] = set()
    for index, (overlap, object_) in enumerate(zip(overlaps.tolist(), nearest.tolist(), strict=True)):
        if overlap < threshold:
            wrong[index] = 1
        elif count_difficult or not objects[object_, 7]:
            (wrong if object_ in taken else right)[index] = 1
            taken.add(object_)
    return right, wrong
