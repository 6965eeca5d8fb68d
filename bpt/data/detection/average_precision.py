"""Average precision of detections, by class and over all classes, with SSD's three rules (``ap_version``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from bpt.data.detection.evaluation import COLUMNS

Floats = NDArray[np.float64]
_EPSILON = 1e-6  # smaller steps of the recall do not count


def precision_and_recall(scores: Floats, right: Floats, wrong: Floats, objects: int) -> tuple[Floats, Floats]:
    """Return precision and recall after each detection, in the order of scores: right / made, and right / objects."""
    order = np.argsort(-scores, kind="stable")
    found, missed = np.cumsum(right[order]), np.cumsum(wrong[order])
    return found / (found + missed), found / objects


def eleven_points(precision: Floats, recall: Floats) -> float:
    """Return the mean of the best precisions at a recall of at least 0, 0.1, … 1 (VOC 2007)."""
    points = np.arange(11) / 10
    return float(np.mean([precision[recall >= point].max(initial=0.0) for point in points]))


def max_integral(precision: Floats, recall: Floats) -> float:
    """Return the integral of the best precision at the same or a higher recall (VOC 2012, ILSVRC).

    As in SSD's Caffe, the step up to a recall counts with the precision at its lower end, if that is better.
    """
    best = np.maximum.accumulate(precision[::-1])[::-1]
    steps = np.diff(recall)
    steps[steps <= _EPSILON] = 0
    return float(best[0] * recall[0] + (best[:-1] * steps).sum())


def integral(precision: Floats, recall: Floats) -> float:
    """Return the integral of the precision over the recall, without interpolation."""
    steps = np.diff(recall, prepend=0.0)
    steps[steps <= _EPSILON] = 0
    return float((precision * steps).sum())


AP_VERSIONS: Mapping[str, Callable[[Floats, Floats], float]] = {
    "11point": eleven_points,
    "MaxIntegral": max_integral,
    "Integral": integral,
}


def average_precision(rows: Floats, objects: int, version: str = "Integral") -> float:
    """Return the average precision of one class; 0 without detections or objects.

    Args:
        rows: (score, right, wrong) of each detection, without those that are neither: (K, 3).
        objects: number of objects of this class in all images.
        version: one of AP_VERSIONS.
    """
    if not len(rows) or not objects:
        return 0.0
    scores, right, wrong = rows.T
    return AP_VERSIONS[version](*precision_and_recall(scores, right, wrong, objects))


@dataclass(frozen=True)
class Precisions:
    """Average precisions by label, and their mean; a label without detections has 0 (SSD: ``TestDetection``)."""

    by_label: dict[int, float]

    @property
    def mean(self) -> float:
        return sum(self.by_label.values()) / max(1, len(self.by_label))


def precisions_of(rows: Tensor, version: str) -> Precisions:
    """Return the average precisions from the rows (…, 5) of DetectionEvaluate, from any batches and in any order.

    Detections with equal scores are in the order of their images.

    Args:
        rows: the rows, with image numbers that are unique over all batches.
        version: one of ``AP_VERSIONS``.
    """
    table = rows.reshape(-1, COLUMNS).double().numpy()
    counts, found = table[table[:, 0] < 0], table[table[:, 0] >= 0]
    found = found[found[:, 0].argsort(kind="stable")]
    found = found[found[:, 3] + found[:, 4] > 0]  # a detection of a difficult object is neither right nor wrong
    return Precisions(
        {
            int(label): average_precision(
                found[found[:, 1] == label, 2:], int(counts[counts[:, 1] == label, 2].sum()), version
            )
            for label in np.unique(counts[:, 1]).tolist()
        }
    )
