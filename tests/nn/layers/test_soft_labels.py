"""SoftmaxWithLoss with labels that are more than one class, or do not all count alike: by hand and against torch."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from bpt.base.errors import LayerError
from tests.support.one_layer import gradient_of, one_layer, tops_of

SCORES = torch.tensor([[1.0, -0.5, 2.0], [0.3, 0.1, -1.0], [0.0, 1.5, 0.5], [-2.0, 0.4, 1.0]])
LABELS = torch.tensor([2.0, 0.0, 1.0, 0.0])


def loss(settings: str, *bottoms: Tensor) -> tuple[float, Tensor]:
    """The loss, and the diff of the scores."""
    layer = one_layer(f'type: "SoftmaxWithLoss" {settings}', *(tuple(bottom.shape) for bottom in bottoms))
    scores = bottoms[0].clone().requires_grad_()
    (top,) = tops_of(layer, scores, *bottoms[1:])
    top.backward()
    return top.item(), gradient_of(scores)


def same(ours: tuple[float, Tensor], of: Tensor, scores: Tensor) -> None:
    of.backward()
    assert ours[0] == pytest.approx(of.item(), rel=1e-6)
    torch.testing.assert_close(ours[1], scores.grad, rtol=1e-6, atol=1e-7)


def test_smoothed_labels_by_hand_and_by_torch() -> None:
    """Of scores 0, ln 2, ln 5 the probabilities are 1/8, 2/8, 5/8; NVIDIA's 0.2 leaves 0.8, and 0.1 for the others."""
    scores = torch.tensor([[0.0, math.log(2), math.log(5)]])
    by_hand = -(0.8 * math.log(2 / 8) + 0.1 * math.log(1 / 8) + 0.1 * math.log(5 / 8))
    found, diff = loss("loss_param { label_smoothing: 0.2 }", scores, torch.tensor([1.0]))
    assert found == pytest.approx(by_hand, rel=1e-6)
    torch.testing.assert_close(diff, torch.tensor([[1 / 8 - 0.1, 2 / 8 - 0.8, 5 / 8 - 0.1]]))
    theirs = SCORES.clone().requires_grad_()  # torch smooths over all classes, the label too
    of = functional.cross_entropy(theirs, LABELS.long(), label_smoothing=0.2 * 3 / 2)
    same(loss("loss_param { label_smoothing: 0.2 }", SCORES, LABELS), of, theirs)


def test_distributions_by_torch() -> None:
    labels = torch.tensor([[0.2, 0.3, 0.5], [1.0, 0, 0], [0, 0.9, 0.1], [0.4, 0.4, 0.2]])
    theirs = SCORES.clone().requires_grad_()
    same(loss("", SCORES, labels), functional.cross_entropy(theirs, labels), theirs)
    one_hot = functional.one_hot(LABELS.long(), 3).float()
    for settings in ("", "loss_param { label_smoothing: 0.3 }"):
        assert loss(settings, SCORES, one_hot)[0] == pytest.approx(loss(settings, SCORES, LABELS)[0], rel=1e-6)


def test_weights_of_classes_and_of_labels() -> None:
    """Torch divides by the sum of the weights; here, as in SegNet's Caffe, by the number of labels."""
    weights, each = torch.tensor([0.5, 2.0, 1.5]), torch.tensor([1.0, 0.0, 3.0, 0.25])
    settings = "loss_param { weight_by_label_freqs: true class_weighting: 0.5 class_weighting: 2 class_weighting: 1.5 }"
    theirs = SCORES.clone().requires_grad_()
    losses = functional.cross_entropy(theirs, LABELS.long(), weights, reduction="none")
    same(loss(settings, SCORES, LABELS, each), (losses * each).sum() / 4, theirs)


def test_pixels_that_are_ignored_do_not_count() -> None:
    scores = torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(1))
    labels = torch.arange(40.0).reshape(2, 1, 4, 5) % 4
    each = torch.linspace(0, 2, 40).reshape(2, 1, 4, 5)
    theirs = scores.clone().requires_grad_()
    losses = functional.cross_entropy(theirs, labels[:, 0].long(), ignore_index=3, reduction="none")
    same(loss("loss_param { ignore_label: 3 }", scores, labels, each), (losses * each[:, 0]).sum() / 30, theirs)


def test_the_most_probable_class_is_the_label_of_an_accuracy() -> None:
    labels = torch.tensor([[0.2, 0.3, 0.5], [0.4, 0.5, 0.1], [0, 0.9, 0.1], [0.4, 0.4, 0.2]])
    layer = one_layer('type: "Accuracy"', (4, 3), (4, 3))
    (top,) = tops_of(layer, SCORES, labels)
    assert top.item() == 0.5


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        ("SoftmaxWithLoss", "loss_param { label_smoothing: 1 }", "label_smoothing is 1; it must be at least 0"),
        ("SigmoidCrossEntropyLoss", "loss_param { label_smoothing: 0.1 }", "label_smoothing is for SoftmaxWithLoss"),
    ],
)
def test_refusals(kind: str, settings: str, message: str) -> None:
    with pytest.raises(LayerError, match=message):
        one_layer(f'type: "{kind}" {settings}', (4, 3), (4, 3) if kind.startswith("Sigmoid") else (4,))
    with pytest.raises(LayerError, match="needs a weight for each label"):
        one_layer('type: "SoftmaxWithLoss"', (4, 3), (4,), (3,))
