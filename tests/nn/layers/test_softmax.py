from __future__ import annotations

import math

import torch

from tests.support.one_layer import one_layer


def test_large_scores_do_not_overflow() -> None:
    # 1 / (1 + 1/3), and a score of -inf has probability 0
    x = torch.tensor([[1000.0, 1000 - math.log(3), -math.inf]])
    torch.testing.assert_close(one_layer('type: "Softmax"', (1, 3))(x), torch.tensor([[0.75, 0.25, 0]]))


def test_negative_axis() -> None:
    x = torch.rand(2, 3, 4, generator=torch.Generator().manual_seed(0))
    top = one_layer('type: "Softmax" softmax_param { axis: -1 }', (2, 3, 4))(x)
    torch.testing.assert_close(top.sum(2), torch.ones(2, 3))
