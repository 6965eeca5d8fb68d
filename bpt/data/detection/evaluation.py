"""Evaluation of detections: one is right if it overlaps an object of its label that no better one has found."""

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

    First come rows (-1, label, number of objects, -1, -1), one for each class. Then come rows (image, label, score,
    right, wrong), one for each detection, by image, label and, where there are such objects, falling score. A detection
    that has found a difficult object is neither right nor wrong, unless these count.

    Args:
        detections: rows (image, label, score, xmin, ymin, xmax, ymax): (D, 7); of image -1: none.
        truth: rows as in ``bpt.data.detection.truth``: (G, 8).
        threshold: by how much a detection must overlap an object (Jaccard).
        count_difficult: difficult objects count as others do.
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
    """Return for each of ``boxes`` (K, 4), the best first, whether it is right and whether wrong: 0 or 1, (K,)."""
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
