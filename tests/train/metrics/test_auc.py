"""The area under the ROC curve: by hand, by counting pairs, and by scikit-learn."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
from sklearn.metrics import roc_auc_score

from bpt.train.metrics import macro_auc


def auc(scores: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    return macro_auc(np.asarray(scores, np.float32), np.asarray(labels))


def drawn(samples: int, classes: int, steps: int = 0) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Softmax scores and labels that have something to do with each other; with ``steps``, many scores are equal."""
    generator = np.random.default_rng(3)
    labels = generator.integers(0, classes, samples)
    scores = generator.normal(size=(samples, classes))
    scores[np.arange(samples), labels] += 1
    if steps:
        scores = scores.round(0)
    exps = np.exp(scores)
    return (exps / exps.sum(1, keepdims=True)).astype(np.float32), labels


def test_two_classes_by_hand() -> None:
    """Class 1 has 0.4 and 0.8, class 0 has 0.1 and 0.4: of 4 pairs 3 are in order and one is a tie."""
    ones = np.array([0.1, 0.4, 0.4, 0.8])
    assert auc(np.stack([1 - ones, ones], 1), [0, 0, 1, 1]) == 3.5 / 4


def test_three_classes_by_hand() -> None:
    scores = [[5, 0, 1], [3, 2, 1], [4, 1, 1], [0, 2, 3]]
    # Class 0 (5 and 3) against 4 and 0: 3 of 4 pairs. Class 1 (1) against 0, 2 and 2: 1 of 3. Class 2 (3): 3 of 3.
    assert auc(scores, [0, 0, 1, 2]) == pytest.approx((3 / 4 + 1 / 3 + 1) / 3)


def test_bounds() -> None:
    assert auc(np.eye(3), [0, 1, 2]) == 1
    assert auc(np.eye(2), [1, 0]) == 0
    assert auc(np.full((6, 3), 1 / 3), [0, 1, 2, 0, 1, 1]) == 0.5


def test_classes_that_cannot_be_told_are_left_out() -> None:
    """Nothing is of class 2, so that classes 0 and 1 are alone."""
    scores = [[3, 1, 9], [2, 2, 0], [1, 3, 0]]
    assert auc(scores, [0, 0, 1]) == 1
    assert auc(scores, [1, 0, 1]) == (0.5 + 0.5) / 2  # 2 against 3 and 1; 1 and 3 against 2
    assert math.isnan(auc(scores, [1, 1, 1]))
    assert math.isnan(auc(np.empty((0, 3)), np.empty(0, int)))


def test_nan() -> None:
    assert math.isnan(auc([[0.5, 0.5], [math.nan, 1]], [0, 1]))
    assert auc([[0, -math.inf], [-math.inf, math.inf]], [0, 1]) == 1


@pytest.mark.parametrize("steps", [0, 1])
def test_as_scikit_learn(steps: int) -> None:
    scores, labels = drawn(400, 5, steps)
    together = scores.astype(np.float64)
    together /= together.sum(1, keepdims=True)
    expected = roc_auc_score(labels, together, multi_class="ovr", average="macro")
    assert 0.6 < expected < 0.95
    assert auc(together, labels) == pytest.approx(expected, abs=1e-6)


def test_two_classes_as_scikit_learn() -> None:
    scores, labels = drawn(300, 2, 1)
    assert auc(scores, labels) == pytest.approx(roc_auc_score(labels, scores[:, 1]), abs=1e-12)


def test_as_counted_pair_by_pair() -> None:
    scores, labels = drawn(60, 3, 1)
    areas = []
    for column in range(3):
        positives, negatives = scores[labels == column, column], scores[labels != column, column]
        wins = [1.0 if p > n else 0.5 if p == n else 0.0 for p in positives for n in negatives]
        areas.append(sum(wins) / len(wins))
    assert auc(scores, labels) == pytest.approx(sum(areas) / 3, abs=1e-12)
