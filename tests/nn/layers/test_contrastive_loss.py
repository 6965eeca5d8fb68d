from __future__ import annotations

import pytest
import torch

from tests.nn.layers.refusals import check_refusal
from tests.support.one_layer import one_layer

LOSS = 'type: "ContrastiveLoss"'


@pytest.mark.parametrize(("legacy", "expected"), [("false", 25 + 0.25), ("true", 25 + 0.75)])
def test_by_hand(legacy: str, expected: float) -> None:
    # Pair 0 is alike, at distance 5: 25. Pair 1 is not, at distance 1/2: (1 - 1/2)² = 1/4; legacy 1 - 1/4.
    a = torch.tensor([[3.0, 4], [0.5, 1]])
    b = torch.tensor([[0.0, 0], [0, 1]])
    layer = one_layer(f"{LOSS} contrastive_loss_param {{ legacy_version: {legacy} }}", (2, 2), (2, 2), (2,))
    assert layer(a, b, torch.tensor([1.0, 0])).item() == expected / (2 * 2)


def test_pairs_beyond_the_margin_are_left_alone() -> None:
    a = torch.tensor([[3.0, 4]], requires_grad=True)
    loss = one_layer(LOSS, (1, 2), (1, 2), (1,))(a, torch.zeros(1, 2), torch.zeros(1))
    loss.backward()
    assert loss.item() == 0
    assert a.grad is not None
    assert a.grad.tolist() == [[0, 0]]


def test_labels_are_truncated() -> None:
    a, b = torch.full((2, 1), 3.0), torch.zeros(2, 1)
    loss = one_layer(LOSS, (2, 1), (2, 1), (2,))(a, b, torch.tensor([0.9, 1.1]))
    assert loss.item() == (0 + 9) / (2 * 2)


def test_refusals() -> None:
    check_refusal(
        f'§bottom: "a" bottom: "b" bottom: "y" {LOSS}',
        'needs two bottoms of features (N, C) and N labels: "a" (2, 3) and "b" (2, 4) and "y" (2,)',
        a=(2, 3),
        b=(2, 4),
        y=(2,),
    )
