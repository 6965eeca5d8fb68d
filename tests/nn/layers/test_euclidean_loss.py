from __future__ import annotations

import torch

from tests.nn.layers.refusals import check_refusal
from tests.support.gradient_checker import check_gradients
from tests.support.one_layer import flops_of, one_layer

LOSS = 'type: "EuclideanLoss"'


def test_bottoms_of_different_shapes() -> None:
    a = torch.tensor([[[1.0, 2], [3, 4]], [[0, 0], [0, 0]]], requires_grad=True)
    b = torch.tensor([[0.0, 0, 0, 0], [1, 1, 1, 2]], requires_grad=True)
    loss = one_layer(LOSS, (2, 2, 2), (2, 4))(a, b)
    loss.backward()
    assert loss.item() == (1 + 4 + 9 + 16 + 1 + 1 + 1 + 4) / (2 * 2)
    assert a.grad is not None
    assert b.grad is not None
    assert a.grad.tolist() == [[[0.5, 1], [1.5, 2]], [[-0.5, -0.5], [-0.5, -1]]]
    assert b.grad.tolist() == [[-0.5, -1, -1.5, -2], [0.5, 0.5, 0.5, 1]]


def test_gradient_of_one_bottom_alone() -> None:
    check_gradients(LOSS, (3, 4), (3, 4), constant=(0,))
    check_gradients(LOSS, (3, 4), (3, 4), constant=(1,))


def test_no_samples() -> None:
    a, b = torch.zeros(0, 3, requires_grad=True), torch.zeros(0, 3)
    loss = one_layer(LOSS, (0, 3), (0, 3))(a, b)
    loss.backward()
    assert loss.item() == 0
    assert a.grad is not None


def test_flops() -> None:
    assert flops_of(LOSS, (4, 5), (4, 5)) == 3 * 20


def test_refusals() -> None:
    check_refusal(
        f'§bottom: "a" bottom: "b" {LOSS}',
        'bottoms must have equally many elements in each sample: "a" (4, 5) and "b" (4, 6)',
        a=(4, 5),
        b=(4, 6),
    )
    check_refusal(
        f'§bottom: "a" bottom: "b" {LOSS}',
        'predictions and labels must have equally many samples (axis 0): "a" (4, 6) and "b" (6, 4)',
        a=(4, 6),
        b=(6, 4),
    )
