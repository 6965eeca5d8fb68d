from __future__ import annotations

import math

import torch

from tests.nn.layers.refusals import check_refusal
from tests.support.one_layer import flops_of, one_layer


def test_large_scores_do_not_overflow() -> None:
    # 1 / (1 + 1/3), and a score of -inf has probability 0
    x = torch.tensor([[1000.0, 1000 - math.log(3), -math.inf]])
    torch.testing.assert_close(one_layer('type: "Softmax"', (1, 3))(x), torch.tensor([[0.75, 0.25, 0]]))


def test_negative_axis() -> None:
    x = torch.rand(2, 3, 4, generator=torch.Generator().manual_seed(0))
    top = one_layer('type: "Softmax" softmax_param { axis: -1 }', (2, 3, 4))(x)
    torch.testing.assert_close(top.sum(2), torch.ones(2, 3))


def test_flops() -> None:
    assert flops_of('type: "Softmax"', (2, 3)) == 4 * 6


def test_a_bad_axis() -> None:
    check_refusal(
        'type: "Softmax" top: "y" softmax_param { §axis: 2 }',
        'axis 2 is outside [-2, 2), the axes of bottom "a" (2, 3)',
        a=(2, 3),
    )
