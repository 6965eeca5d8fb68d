"""Losses by hand: numbers, gradients, batches without samples, and what is refused."""

from __future__ import annotations

import logging
import math

import pytest
import torch

from bpt.base.errors import DataError
from tests.nn.layers.refusals import check_refusal
from tests.support.gradient_checker import check_gradients, spaced
from tests.support.one_layer import gradient_of, one_layer

BY_SAMPLES = {  # with the shapes of all bottoms but the first
    "ContrastiveLoss": ((2, 3), (2,)),
    "EuclideanLoss": ((2, 3),),
    "HingeLoss": ((2,),),
    "MultinomialLogisticLoss": ((2,),),
}


@pytest.mark.parametrize("kind", BY_SAMPLES)
def test_loss_param_is_noticed_where_it_has_no_effect(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    body = f'type: "{kind}" loss_param {{ ignore_label: 1 }}'
    with caplog.at_level(logging.WARNING, "bpt"):
        layer = one_layer(body, (2, 3), *BY_SAMPLES[kind])
    assert caplog.messages == [f'layer "L": loss_param has no effect, since {kind} does not read it']
    assert not layer.counts_by_data(layer.spec)


def test_loss_param_is_not_noticed_where_it_counts(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "bpt"):
        layer = one_layer('type: "SoftmaxWithLoss" loss_param { ignore_label: 1 }', (2, 3), (2,))
    assert not caplog.text
    assert layer.counts_by_data(layer.spec) == "loss_param { ignore_label } leaves labels out of the normaliser"


HINGE = 'type: "HingeLoss"'
L2 = f"{HINGE} hinge_loss_param {{ norm: L2 }}"
MULTINOMIAL = 'type: "MultinomialLogisticLoss"'
of_classes = pytest.mark.parametrize("body", [HINGE, L2, MULTINOMIAL])


def scores_of(body: str, shape: tuple[int, ...]) -> torch.Tensor:
    """Numbers around 0, or probabilities for the loss that needs them."""
    return spaced(shape) / 5 + 0.5 if body == MULTINOMIAL else spaced(shape)


@pytest.mark.parametrize(("body", "expected"), [(HINGE, 2 + 0.5 + 0.25), (L2, 4 + 0.25 + 0.0625)])
def test_hinge_by_hand(body: str, expected: float) -> None:
    # Sample 0 is of class 1: its score -1 lacks 2 to the margin, the other one, -0.5, lacks 1/2.
    # Sample 1 is of class 0: 3 keeps the margin, -0.75 lacks 1/4.
    scores = torch.tensor([[-0.5, -1], [3, -0.75]])
    assert one_layer(body, (2, 2), (2,))(scores, torch.tensor([1.0, 0])).item() == expected / 2


@pytest.mark.parametrize(("body", "expected"), [(HINGE, [1, -1, 0]), (L2, [1, -4, 0])])
def test_gradient_by_hand(body: str, expected: list[float]) -> None:
    # Class 1 lacks 2, class 0 lacks 1/2, and class 2 keeps the margin exactly: its gradient is 0, as in Caffe.
    scores = torch.tensor([[-0.5, -1, -1]], requires_grad=True)
    one_layer(body, (1, 3), (1, 1))(scores, torch.tensor([[1.0]])).backward()
    assert gradient_of(scores).tolist() == [expected]


def test_multinomial_by_hand() -> None:
    p = torch.tensor([[0.5, 0.25], [0.125, 0.75]], requires_grad=True)
    loss = one_layer(MULTINOMIAL, (2, 2), (2,))(p, torch.tensor([1.0, 0]))
    loss.backward()
    assert loss.item() == pytest.approx((math.log(4) + math.log(8)) / 2)
    assert gradient_of(p).tolist() == [[0, -4 / 2], [-8 / 2, 0]]


def test_a_probability_of_0_has_a_vast_gradient() -> None:
    p = torch.tensor([[0.0, 1], [1, 0]], requires_grad=True)
    loss = one_layer(MULTINOMIAL, (2, 2), (2,))(p, torch.tensor([0.0, 0]))
    loss.backward()
    assert loss.item() == pytest.approx(-math.log(1e-20) / 2)
    assert gradient_of(p)[0, 0].item() == pytest.approx(-1e20 / 2)
    assert gradient_of(p).flatten()[1:].tolist() == [0, -0.5, 0]


@of_classes
def test_later_axes_are_classes(body: str) -> None:
    x, labels = scores_of(body, (2, 3, 1, 2)).float(), torch.tensor([5.0, 0])
    top = one_layer(body, (2, 3, 1, 2), (2, 1, 1, 1))(x.contiguous(memory_format=torch.channels_last), labels)
    torch.testing.assert_close(top, one_layer(body, (2, 6), (2,))(x.reshape(2, 6), labels))


@of_classes
def test_no_samples(body: str) -> None:
    assert one_layer(body, (0, 3), (0,))(torch.zeros(0, 3), torch.zeros(0)).item() == 0


@of_classes
def test_exports_for_any_batch_size(body: str) -> None:
    layer = one_layer(body, (3, 5), (3,))
    batch = ({0: torch.export.Dim.DYNAMIC},) * 2
    program = torch.export.export(layer, (scores_of(body, (3, 5)).float(), torch.ones(3)), dynamic_shapes=(batch,))
    larger = (scores_of(body, (7, 5)).float(), torch.full((7,), 4.0))
    torch.testing.assert_close(program.module()(*larger), layer(*larger))


@of_classes
@pytest.mark.parametrize(("labels", "position"), [((0.0, 3), 1), ((-1.0, 2), 0)])
def test_labels_that_are_no_classes(body: str, labels: tuple[float, float], position: int) -> None:
    layer = one_layer(body, (2, 3), (2,))
    label = int(labels[position])
    message = f'layer "L": label {label} at position {position} of "x1" is outside \\[0, 3\\), the classes of "x0"'
    with pytest.raises(DataError, match=message):
        layer(torch.ones(2, 3), torch.tensor(labels))


@of_classes
@pytest.mark.parametrize(("scores", "labels"), [((2, 3), (3,)), ((2, 3), (2, 2)), ((2, 3), ()), ((2, 3, 4), (2, 4))])
def test_labels_of_other_shapes(body: str, scores: tuple[int, ...], labels: tuple[int, ...]) -> None:
    message = f'needs one label for each sample (axis 0): "x" {scores} and "y" {labels}'
    check_refusal(f'bottom: "x" §bottom: "y" {body}', message, x=scores, y=labels)


EUCLIDEAN_LOSS = 'type: "EuclideanLoss"'


def test_bottoms_of_different_shapes() -> None:
    a = torch.tensor([[[1.0, 2], [3, 4]], [[0, 0], [0, 0]]], requires_grad=True)
    b = torch.tensor([[0.0, 0, 0, 0], [1, 1, 1, 2]], requires_grad=True)
    loss = one_layer(EUCLIDEAN_LOSS, (2, 2, 2), (2, 4))(a, b)
    loss.backward()
    assert loss.item() == (1 + 4 + 9 + 16 + 1 + 1 + 1 + 4) / (2 * 2)
    assert gradient_of(a).tolist() == [[[0.5, 1], [1.5, 2]], [[-0.5, -0.5], [-0.5, -1]]]
    assert gradient_of(b).tolist() == [[-0.5, -1, -1.5, -2], [0.5, 0.5, 0.5, 1]]


def test_gradient_of_one_bottom_alone() -> None:
    check_gradients(EUCLIDEAN_LOSS, (3, 4), (3, 4), constant=(0,))
    check_gradients(EUCLIDEAN_LOSS, (3, 4), (3, 4), constant=(1,))


def test_euclidean_no_samples() -> None:
    a, b = torch.zeros(0, 3, requires_grad=True), torch.zeros(0, 3)
    loss = one_layer(EUCLIDEAN_LOSS, (0, 3), (0, 3))(a, b)
    loss.backward()
    assert loss.item() == 0
    assert a.grad is not None


CONTRASTIVE_LOSS = 'type: "ContrastiveLoss"'


@pytest.mark.parametrize(("legacy", "expected"), [("false", 25 + 0.25), ("true", 25 + 0.75)])
def test_contrastive_by_hand(legacy: str, expected: float) -> None:
    # Pair 0 is alike, at distance 5: 25. Pair 1 is not, at distance 1/2: (1 - 1/2)² = 1/4; legacy 1 - 1/4.
    a = torch.tensor([[3.0, 4], [0.5, 1]])
    b = torch.tensor([[0.0, 0], [0, 1]])
    layer = one_layer(f"{CONTRASTIVE_LOSS} contrastive_loss_param {{ legacy_version: {legacy} }}", (2, 2), (2, 2), (2,))
    assert layer(a, b, torch.tensor([1.0, 0])).item() == expected / (2 * 2)


def test_pairs_beyond_the_margin_are_left_alone() -> None:
    a = torch.tensor([[3.0, 4]], requires_grad=True)
    loss = one_layer(CONTRASTIVE_LOSS, (1, 2), (1, 2), (1,))(a, torch.zeros(1, 2), torch.zeros(1))
    loss.backward()
    assert loss.item() == 0
    assert gradient_of(a).tolist() == [[0, 0]]


def test_labels_are_truncated() -> None:
    a, b = torch.full((2, 1), 3.0), torch.zeros(2, 1)
    loss = one_layer(CONTRASTIVE_LOSS, (2, 1), (2, 1), (2,))(a, b, torch.tensor([0.9, 1.1]))
    assert loss.item() == (0 + 9) / (2 * 2)


SIGMOID_LOSS = 'type: "SigmoidCrossEntropyLoss"'


def test_sigmoid_by_hand() -> None:
    # At score 0, p = 1/2 and any target costs log 2; at score log 3, p = 3/4, and target 0 costs log 4.
    scores = torch.tensor([[0.0, math.log(3)], [0, 0]])
    targets = torch.tensor([[0.3, 0], [1, 0]])
    loss = one_layer(SIGMOID_LOSS, (2, 2), (2, 2))(scores, targets)
    assert loss.item() == pytest.approx((3 * math.log(2) + math.log(4)) / 2)


def test_large_scores_do_not_overflow() -> None:
    loss = one_layer(SIGMOID_LOSS, (1, 2), (1, 2))(torch.tensor([[1000.0, -1000]]), torch.tensor([[0.0, 0]]))
    assert loss.item() == 1000


def test_an_ignored_score_does_not_count_even_if_it_is_infinite() -> None:
    scores = torch.tensor([[torch.inf, 0.0]], requires_grad=True)
    loss = one_layer(f"{SIGMOID_LOSS} loss_param {{ ignore_label: 255 }}", (1, 2), (1, 2))(
        scores, torch.tensor([[255.0, 1]])
    )
    loss.backward()
    assert loss.item() == pytest.approx(math.log(2))
    assert gradient_of(scores).tolist() == [[0, -0.5]]


def test_triplets() -> None:
    layer = one_layer('type: "TripletLoss" triplet_loss_param { margin: 3 }', (2, 2), (2, 2), (2, 2))
    anchors = torch.zeros(2, 2, requires_grad=True)
    positives, negatives = torch.tensor([[1.0, 2], [1, 0]]), torch.tensor([[2.0, 0], [3, 0]])
    loss = layer(anchors, positives, negatives)
    assert loss.item() == (3 + 5 - 4 + 0) / 4  # the second: 3 + 1 - 9 < 0
    loss.backward()
    assert gradient_of(anchors).tolist() == [[(2 - 1) / 2, -2 / 2], [0, 0]]


def test_centres_follow_their_classes_whatever_the_loss_weighs() -> None:
    layer = one_layer('type: "CenterLoss" center_loss_param { num_output: 3 }', (4, 2), (4,))
    with torch.no_grad():
        layer.blobs[0].copy_(torch.tensor([[1.0, 1], [0, 0], [5, 5]]))
    x = torch.tensor([[2.0, 1], [0, 3], [1, -1], [3, 3]], requires_grad=True)
    loss = layer(x, torch.tensor([0.0, 1, 0, 0]))
    assert loss.item() == (1 + 9 + 4 + 8) / 8
    (loss * 7).backward()
    assert gradient_of(x).tolist() == [[7 / 4, 0], [0, 21 / 4], [0, -14 / 4], [14 / 4, 14 / 4]]
    # Σ (c - x) / (1 + n): (1 - 2, 1 - 1) + (1 - 1, 1 + 1) + (1 - 3, 1 - 3) of three, and (0, -3) of one
    assert gradient_of(layer.blobs[0]).tolist() == [[-3 / 4, 0], [0, -3 / 2], [0, 0]]
    with pytest.raises(DataError, match=r"index 3 at position 1 .* outside \[0, 3\), its classes"):
        layer(x, torch.tensor([0.0, 3, 0, 0]))
