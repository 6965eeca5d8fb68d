"""The area under the ROC curve of a classifier, class by class."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt


def macro_auc(scores: npt.NDArray[np.floating], labels: npt.NDArray[np.integer]) -> float:
    """Return the mean over all classes of the area under the ROC curve of this class against all others.

    Each class has the same weight, for any number of samples. BPT-CNN reports an AUC (section 5.2) without a definition
    for many classes; this is scikit-learn's ``roc_auc_score(multi_class="ovr", average="macro")``.

    Args:
        scores: (samples, classes) the confidence in each class, comparable between samples, as softmax's probabilities
            are. Two classes have two columns, too; if these add up to 1, their areas are equal.
        labels: (samples) the classes, from 0.

    Returns:
        0.5 for guessing, 1 for no mistake. Only classes with samples of their own and samples of others count. The
        result is NaN if there is no such class, or if a score is NaN.
    """
    assert scores.ndim == 2 and labels.shape == scores.shape[:1], (scores.shape, labels.shape)
    if np.isnan(scores).any():
        return math.nan
    areas = list(_areas(scores, labels))
    return math.fsum(areas) / len(areas) if areas else math.nan


def _areas(scores: npt.NDArray[np.floating], labels: npt.NDArray[np.integer]) -> Iterator[float]:
    for column in range(scores.shape[1]):
        own = labels == column
        positives = int(own.sum())
        if 0 < positives < len(labels):
            yield _area(scores[own, column], scores[~own, column])


def _area(positives: npt.NDArray[np.floating], negatives: npt.NDArray[np.floating]) -> float:
    """Return the probability that a positive has a better score than a negative; equal scores count half.

    That is the area under the ROC curve (Mann and Whitney's U over the number of pairs, ties having mid-ranks).
    """
    negatives = np.sort(negatives)
    positives = np.sort(positives)  # a search in order has better cache locality
    worse = int(np.searchsorted(negatives, positives, side="left").sum(dtype=np.int64))
    not_better = int(np.searchsorted(negatives, positives, side="right").sum(dtype=np.int64))
    return (worse + not_better) / (2 * len(positives) * len(negatives))
