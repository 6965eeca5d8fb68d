from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from bpt.base.errors import DataError
from tests.support.one_layer import gradient_of, one_layer, shapes_of, tops_of

LOSS = 'type: "SoftmaxWithLoss"'
# Softmax: [3/4, 1/4], [1/2, 1/2], [1/5, 4/5]
SCORES = torch.tensor([[math.log(3), 0], [7, 7], [0, math.log(4)]])


def loss_of(more: str, scores: Tensor, labels: Sequence[float] | Tensor, tops: int = 1) -> Tensor:
    labels = torch.as_tensor(labels)
    layer = one_layer(f"{LOSS} {more}", tuple(scores.shape), tuple(labels.shape), tops=tops)
    return tops_of(layer, scores, labels)[0]


def test_by_hand() -> None:
    # -(log 3/4 + log 1/2 + log 1/5) / 3
    loss = loss_of("", SCORES, [0.0, 1.0, 0.0])
    torch.testing.assert_close(loss, torch.tensor(-math.log(3 / 40) / 3))


@pytest.mark.parametrize(
    ("text", "divisor"),
    [
        ("normalization: VALID", 3),
        ("normalization: FULL", 4),
        ("normalization: BATCH_SIZE", 2),
        ("normalization: NONE", 1),
        ("normalize: true", 3),
        ("normalize: false", 2),
        ("normalize: true normalization: NONE", 1),
        ("normalize: false normalization: FULL", 4),
        ("", 3),
    ],
)
def test_normalization(text: str, divisor: int) -> None:
    # Two samples of two positions each; one label of the four is ignored. All scores 0: p = 1/2.
    loss = loss_of(f"loss_param {{ ignore_label: 9 {text} }}", torch.zeros(2, 2, 2), torch.tensor([[0.0, 1], [9, 1]]))
    torch.testing.assert_close(loss, torch.tensor(3 * math.log(2) / divisor))


@pytest.mark.parametrize("mode", ["VALID", "FULL", "BATCH_SIZE", "NONE"])
def test_no_samples(mode: str) -> None:
    scores = torch.zeros(0, 2, 3, requires_grad=True)
    loss = loss_of(f"loss_param {{ normalization: {mode} }}", scores, torch.zeros(0, 3))
    loss.backward()
    assert loss.item() == 0
    assert gradient_of(scores).shape == (0, 2, 3)


def test_all_ignored_gives_no_gradient() -> None:
    scores = SCORES.clone().requires_grad_()
    loss = loss_of("loss_param { ignore_label: 1 }", scores, [1.0, 1, 1])
    loss.backward()
    assert loss.item() == 0
    assert torch.equal(gradient_of(scores), torch.zeros(3, 2))


def test_loss_is_clipped_at_flt_min_but_its_gradient_is_not() -> None:
    # p = (1, e^-200, 0) with label 1 and label 2: both count as -log(FLT_MIN) = 87.336...
    scores = torch.tensor([[0, -200, -math.inf]] * 2, requires_grad=True)
    loss = loss_of("loss_param { normalization: NONE }", scores, [1.0, 2])
    torch.testing.assert_close(loss.detach(), torch.tensor(2 * 126 * math.log(2)))
    loss.backward()
    torch.testing.assert_close(gradient_of(scores), torch.tensor([[1.0, -1, 0], [1, 0, -1]]))


def test_second_top_holds_the_probabilities() -> None:
    layer = one_layer(f"{LOSS} softmax_param {{ axis: 2 }}", (1, 3, 2), (1, 3), tops=2)
    scores = SCORES.reshape(1, 3, 2).requires_grad_()
    loss, p = tops_of(layer, scores, torch.zeros(1, 3))
    torch.testing.assert_close(p, torch.tensor([[[0.75, 0.25], [0.5, 0.5], [0.2, 0.8]]]))
    torch.testing.assert_close(loss.detach(), torch.tensor(-math.log(3 / 40) / 3))
    assert not p.requires_grad
    assert shapes_of(LOSS, (4, 5, 2), (4, 2), tops=2) == ((), (4, 5, 2))


def test_batch_size_counts_all_that_stands_before_the_axis() -> None:
    # Axis 2 of (2, 3, 4): outer = 6 labels, so BATCH_SIZE divides by 6.
    more = "softmax_param { axis: -1 } loss_param { normalization: BATCH_SIZE }"
    loss = loss_of(more, torch.zeros(2, 3, 4), torch.zeros(2, 3))
    torch.testing.assert_close(loss, torch.tensor(math.log(4)))


@pytest.mark.parametrize("shape", [(4, 3, 2), (4, 6), (4, 1, 3, 2), (4, 2, 3)])
def test_labels_may_have_any_shape_with_the_right_count(shape: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(4, 5, 3, 2, generator=generator)
    labels = torch.randint(0, 5, (4, 3, 2), generator=generator)
    expected = functional.cross_entropy(scores, labels)
    torch.testing.assert_close(loss_of("", scores, labels.reshape(shape).float()), expected)


def test_labels_are_cut_to_integers() -> None:
    assert loss_of("", SCORES, [0.9, 1.5, -0.5]) == loss_of("", SCORES, [0.0, 1, 0])


@pytest.mark.parametrize(
    ("labels", "more", "message"),
    [
        ([0, 1, 2], "", 'label 2 at position 2 of "x1" is outside [0, 2), the classes of "x0"'),
        ([0, -1, 0], "", 'label -1 at position 1 of "x1" is outside [0, 2), the classes of "x0"'),
        ([0, 1, 1e9], "", 'label 1e+09 at position 2 of "x1" is outside [0, 2), the classes of "x0"'),
        (
            [255, 255, 12.5],
            "loss_param { ignore_label: 255 }",
            'label 12.5 at position 2 of "x1" is outside [0, 2), the classes of "x0"',
        ),
        (
            [-1, 1, 3],
            "loss_param { ignore_label: -1 }",
            'label 3 at position 2 of "x1" is outside [0, 2), the classes of "x0"',
        ),
    ],
)
def test_labels_that_are_no_class(labels: list[float], more: str, message: str) -> None:
    with pytest.raises(DataError) as caught:
        loss_of(more, SCORES, [float(label) for label in labels])
    assert str(caught.value).startswith(f'layer "L": {message}; correct the list or data set that "x1" comes from')


def test_position_of_a_label_counts_in_the_order_of_the_blob() -> None:
    labels = torch.zeros(2, 4, 5)
    labels[1, 1, 2] = 8
    with pytest.raises(DataError) as caught:
        loss_of("", torch.zeros(2, 3, 4, 5), labels)
    # sample 1, row 1, column 2: 20 + 5 + 2
    assert str(caught.value).startswith(
        'layer "L": label 8 at position 27 of "x1" is outside [0, 3), the classes of "x0"'
    )


@pytest.mark.parametrize("label", [-1.0, 0.0, 1.0, 77.0])
def test_an_ignored_label_may_be_a_class_or_not(label: float) -> None:
    more = f"loss_param {{ ignore_label: {label:g} }}"
    other = 1 - label if label in (0, 1) else 0.0
    loss = loss_of(more, SCORES, [label, other, label])
    torch.testing.assert_close(loss, torch.tensor(math.log(2)))


@pytest.mark.filterwarnings("ignore:.*torch.jit.trace:DeprecationWarning")
def test_is_traced() -> None:
    """Labels were looked at while a trace was written, which torch warns of."""
    layer = one_layer(LOSS, (3, 2), (3,))
    traced = torch.jit.trace(layer, (SCORES, torch.zeros(3)), check_trace=False)
    labels = torch.tensor([0.0, 1, 1])
    torch.testing.assert_close(traced(SCORES, labels), layer(SCORES, labels))
