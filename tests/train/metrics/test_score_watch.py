"""Accuracy and AUC of a test, against softmax and AUC computed apart."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from bpt.config.proto import bpt_pb2 as pb
from bpt.engine.operator import Operator
from bpt.nn.net import Net
from bpt.train.metrics import ClassScores, ScoreWatch, macro_auc
from bpt.train.runtime.testing import run_test
from tests.support.golden_cases import graph_of
from tests.support.near import near
from tests.train.metrics.nets import ACCURACY, CORRECT, LABELS, LOSS, SCORES, operator_of, run

GENERATOR = torch.Generator().manual_seed(2)
MORE = torch.randn(4, 3, generator=GENERATOR)
MORE_LABELS = torch.tensor([2.0, 1.0, 0.0, 2.0])


def expected_auc(scores: Tensor, labels: Tensor) -> float:
    return macro_auc(torch.softmax(scores.double(), 1).numpy(), labels.long().numpy())


@pytest.mark.parametrize("layers", [LOSS % "", ACCURACY % "accuracy_param { top_k: 2 }", (LOSS + ACCURACY) % ("", "")])
def test_a_test_of_two_batches(layers: str) -> None:
    operator = operator_of(layers, phase=pb.TEST)
    with ScoreWatch(operator.net) as watch:
        run(operator, grad=False)
        run(operator, MORE, MORE_LABELS, grad=False)
    run(operator, grad=False)  # after the block: not seen
    result = watch.result()
    scores, labels = torch.cat([SCORES, MORE]), torch.cat([LABELS, MORE_LABELS])
    right = CORRECT + int((MORE.argmax(1) == MORE_LABELS).sum())
    assert result == ClassScores(right / 8, near(expected_auc(scores, labels), abs=1e-6), 8)
    # Raw scores, which mean something else in each sample, would give another area.
    assert result.auc != pytest.approx(macro_auc(scores.numpy(), labels.long().numpy()), abs=1e-3)


def test_around_run_test() -> None:
    net = """
    layer { name: "data" type: "DummyData" top: "x" top: "y"
            dummy_data_param { shape { dim: 40 dim: 3 } shape { dim: 40 }
                               data_filler { type: "gaussian" } data_filler { type: "uniform" min: 0 max: 2.999 } } }
    layer { name: "acc" type: "Accuracy" bottom: "x" bottom: "y" top: "a" }
    """
    operator = Operator(Net(graph_of(net, pb.TEST)))
    with ScoreWatch(operator.net) as watch:
        scores = run_test(operator, 3)
    assert scores is not None
    result = watch.result()
    assert result.counted == 120
    assert result.accuracy == pytest.approx(scores.outputs["a"].item(), abs=1e-6)
    assert 0.35 < result.auc < 0.65  # it guesses


def test_clear_and_go_on() -> None:
    operator = operator_of(LOSS % "", phase=pb.TEST)
    watch = ScoreWatch(operator.net)
    for scores in (MORE, SCORES):
        watch.clear()
        with watch:
            run(operator, scores, LABELS, grad=False)
    assert watch.result() == ClassScores(CORRECT / 4, near(expected_auc(SCORES, LABELS), abs=1e-6), 4)


def test_probabilities_stay_what_they_are() -> None:
    """Softmax of probabilities would not keep their order among samples: 0.5 beside 0.5 is not 0.5 beside 0.3."""
    layers = 'layer { name: "prob" type: "Softmax" bottom: "x" top: "p" }\n' + (ACCURACY % "").replace('"x"', '"p"')
    layers += 'layer { type: "Silence" bottom: "p" }'  # so that there is a Split between them
    operator = operator_of(layers, (50, 3), (50,), phase=pb.TEST)
    scores = torch.randn(50, 3, generator=GENERATOR) * 2
    labels = torch.randint(0, 3, (50,), generator=GENERATOR).float()
    with ScoreWatch(operator.net) as watch:
        run(operator, scores, labels, grad=False)
    assert watch.result().auc == pytest.approx(expected_auc(scores, labels), abs=1e-6)
    twice = expected_auc(torch.softmax(scores, 1), labels)
    assert watch.result().auc != pytest.approx(twice, abs=1e-4)


def test_positions_and_ignored_labels() -> None:
    """Segmentation: 2 images of 3 × 2 positions, one of which is ignored."""
    operator = operator_of(LOSS % "loss_param { ignore_label: 255 }", (2, 3, 3, 2), (2, 1, 3, 2), phase=pb.TEST)
    scores = torch.randn(2, 3, 3, 2, generator=GENERATOR)
    labels = torch.tensor([0, 1, 2, 0, 255, 1, 2, 2, 1, 0, 1, 0]).float()
    with ScoreWatch(operator.net) as watch:
        run(operator, scores, labels.view(2, 1, 3, 2), grad=False)
    kept = labels != 255
    rows = torch.stack([scores[n, :, i, j] for n in range(2) for i in range(3) for j in range(2)])[kept]
    right = int((rows.argmax(1) == labels[kept]).sum())
    auc = expected_auc(rows, labels[kept])
    assert watch.result() == ClassScores(right / 11, near(auc, abs=1e-6), 11)


def test_memory_is_bounded() -> None:
    """A batch takes 4 · 3 · 4 = 48 bytes."""
    operator = operator_of(LOSS % "", phase=pb.TEST)
    with ScoreWatch(operator.net, limit=100) as watch:
        for _ in range(2):
            run(operator, grad=False)
        assert not math.isnan(watch.result().auc)
        run(operator, grad=False)
        result = watch.result()
        assert math.isnan(result.auc)
        assert (result.accuracy, result.counted) == (CORRECT / 4, 12)
        assert "MiB" in result.note
        watch.clear()
        run(operator, grad=False)
        assert not math.isnan(watch.result().auc)


def test_no_classes_no_labels_one_class() -> None:
    euclidean = operator_of('layer { type: "EuclideanLoss" bottom: "x" bottom: "y" }', labels=(4, 3), phase=pb.TEST)
    with ScoreWatch(euclidean.net) as watch:
        run(euclidean, labels=SCORES, grad=False)
    assert math.isnan(watch.result().accuracy) and "no SoftmaxWithLoss" in watch.result().note
    operator = operator_of(LOSS % "", phase=pb.TEST)
    with ScoreWatch(operator.net) as watch:
        assert "no label" in watch.result().note
        run(operator, labels=torch.zeros(4), grad=False)
        result = watch.result()
    assert (result.accuracy, math.isnan(result.auc)) == (1 / 4, True)
    assert "no class" in result.note


def test_nothing_is_shared_with_the_net() -> None:
    """What a later pass writes into the same memory does not reach what was gathered."""
    operator = operator_of(LOSS % "", phase=pb.TEST)
    scores = SCORES.clone()
    with ScoreWatch(operator.net) as watch:
        run(operator, scores, grad=False)
        before = watch.result()
        scores.zero_()
    assert np.isfinite(before.auc) and watch.result() == before
