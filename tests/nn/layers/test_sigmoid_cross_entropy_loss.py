from __future__ import annotations

import math

import pytest
import torch

from tests.nn.layers.refusals import check_refusal
from tests.support.gradient_checker import check_gradients, spaced
from tests.support.one_layer import one_layer

LOSS = 'type: "SigmoidCrossEntropyLoss"'


def test_by_hand() -> None:
    # At score 0, p = 1/2 and any target costs log 2; at score log 3, p = 3/4, and target 0 costs log 4.
    scores = torch.tensor([[0.0, math.log(3)], [0, 0]])
    targets = torch.tensor([[0.3, 0], [1, 0]])
    loss = one_layer(LOSS, (2, 2), (2, 2))(scores, targets)
    assert loss.item() == pytest.approx((3 * math.log(2) + math.log(4)) / 2)


def test_large_scores_do_not_overflow() -> None:
    loss = one_layer(LOSS, (1, 2), (1, 2))(torch.tensor([[1000.0, -1000]]), torch.tensor([[0.0, 0]]))
    assert loss.item() == 1000


def test_an_ignored_score_does_not_count_even_if_it_is_infinite() -> None:
    scores = torch.tensor([[torch.inf, 0.0]], requires_grad=True)
    loss = one_layer(f"{LOSS} loss_param {{ ignore_label: 255 }}", (1, 2), (1, 2))(scores, torch.tensor([[255.0, 1]]))
    loss.backward()
    assert loss.item() == pytest.approx(math.log(2))
    assert scores.grad is not None
    assert scores.grad.tolist() == [[0, -0.5]]


@pytest.mark.parametrize("settings", ["", "loss_param { normalization: VALID ignore_label: 0 }"])
def test_gradients(settings: str) -> None:
    check_gradients(f"{LOSS} {settings}", (3, 4), (spaced((3, 4)) + 2) / 2, constant=(1,))


def test_refusals() -> None:
    check_refusal(
        f'§bottom: "a" bottom: "b" {LOSS}',
        'needs as many targets as scores: "a" (2, 3) and "b" (2, 4)',
        a=(2, 3),
        b=(2, 4),
    )
