"""The area under the ROC curve, and counts of confusion: by hand, by counting, and by scikit-learn."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from sklearn.metrics import confusion_matrix, roc_auc_score, top_k_accuracy_score

from bpt.config.proto import bpt_pb2 as pb
from bpt.system.comm.base import Communicator
from bpt.system.comm.serial import SerialCommunicator
from bpt.train.metrics import Confusion, ConfusionWatch, ScoreWatch, macro_auc
from tests.support.doubles.thread_ranks import run_ranks
from tests.train.metrics.nets import ACCURACY, LABELS, LOSS, SCORES, operator_of, run


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


GENERATOR = torch.Generator().manual_seed(4)


def test_by_hand() -> None:
    """The last sample's label, 0, is only as good as class 1: that counts as taken for 1, at place 1."""
    operator = operator_of(LOSS % "", phase=pb.TEST)
    with ConfusionWatch(operator.net) as watch:
        run(operator, grad=False)
    found = watch.result(SerialCommunicator())
    assert found is not None
    assert found.matrix.tolist() == [[1, 1, 0], [0, 1, 0], [0, 1, 0]]
    assert found.places.tolist() == [2, 2, 0]
    assert found.labels.tolist() == [2, 1, 1]
    assert (found.top(1), found.top(2)) == (2 / 4, 1)
    assert found.of_classes().tolist() == [0.5, 1, 0]


@pytest.mark.parametrize("layers", [LOSS, ACCURACY])
def test_random_scores_as_scikit_learn_counts(layers: str) -> None:
    operator = operator_of(layers % "", (30, 6), (30,), phase=pb.TEST)
    scores = [torch.randn(30, 6, generator=GENERATOR) for _ in range(2)]
    labels = [torch.randint(0, 5, (30,), generator=GENERATOR).float() for _ in range(2)]  # none of class 5
    with ConfusionWatch(operator.net) as watch:
        for some, theirs in zip(scores, labels, strict=True):
            run(operator, some, theirs, grad=False)
    found = watch.result(SerialCommunicator())
    assert found is not None
    rows, truth = torch.cat(scores).numpy(), torch.cat(labels).numpy().astype(int)
    expected = confusion_matrix(truth, rows.argmax(1), labels=range(6))
    np.testing.assert_array_equal(found.matrix, expected)
    for k in (1, 2, 4):
        assert found.top(k) == pytest.approx(top_k_accuracy_score(truth, rows, k=k, labels=range(6)))
    assert found.top(6) == 1
    assert math.isnan(found.of_classes()[5])


def test_positions_ignored_labels_and_nan() -> None:
    operator = operator_of(LOSS % "loss_param { ignore_label: 255 }", (1, 2, 2, 2), (1, 1, 2, 2), phase=pb.TEST)
    scores = torch.tensor([[[[1.0, 2.0], [0.0, math.nan]], [[0.0, 3.0], [4.0, 0.0]]]])
    with ConfusionWatch(operator.net) as watch:
        run(operator, scores, torch.tensor([0.0, 0, 255, 0]).view(1, 1, 2, 2), grad=False)
    found = watch.result(SerialCommunicator())
    assert found is not None
    # Right; taken for 1; ignored; a label whose score is not a number is never right, at no place.
    assert found.matrix.tolist() == [[1, 2], [0, 0]]
    assert found.places.tolist() == [1, 1]


def test_nothing_seen() -> None:
    operator = operator_of('layer { type: "EuclideanLoss" bottom: "x" bottom: "y" }', labels=(4, 3), phase=pb.TEST)
    with ConfusionWatch(operator.net) as watch:
        run(operator, labels=SCORES, grad=False)
    assert watch.result(SerialCommunicator()) is None
    assert math.isnan(Confusion(np.zeros((2, 2), np.int64), np.zeros(2, np.int64)).top(1))


def test_ranks_count_together() -> None:
    """Rank 1 has seen nothing at all; ranks 0 and 2 have two samples each."""

    def count(ranks: Communicator) -> tuple[Any, ...]:
        operator = operator_of(LOSS % "", (2, 3), (2,), phase=pb.TEST)
        mine = slice(0, 2) if ranks.rank == 0 else slice(2, 4)
        with ConfusionWatch(operator.net) as confusions, ScoreWatch(operator.net) as scores:
            if ranks.rank != 1:
                run(operator, SCORES[mine], LABELS[mine], grad=False)
        found = confusions.result(ranks)
        assert found is not None
        return found.matrix.tolist(), found.places.tolist(), scores.result(ranks)

    matrix, places = [[1, 1, 0], [0, 1, 0], [0, 1, 0]], [2, 2, 0]
    auc = macro_auc(torch.softmax(SCORES.double(), 1).numpy(), LABELS.long().numpy())
    for found in run_ranks(3, count):
        assert found[:2] == (matrix, places)
        assert (found[2].accuracy, found[2].counted, found[2].auc) == (0.5, 4, pytest.approx(auc))
