from __future__ import annotations

import math

import pytest
import torch

from tests.gradient_checker import check_gradients, spaced
from tests.layers.refusals import check_refusal
from tests.one_layer import one_layer

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
