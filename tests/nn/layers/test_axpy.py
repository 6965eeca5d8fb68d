from __future__ import annotations

import pytest
import torch

from tests.nn.layers.refusals import check_refusal
from tests.support.gradient_checker import check_gradients
from tests.support.one_layer import flops_of, one_layer

AXPY = 'type: "Axpy"'
Shape = tuple[int, ...]


@pytest.mark.parametrize(
    ("factors", "shape"),
    [((2, 3), (2, 3, 5, 1)), ((2, 3, 1, 1), (2, 3, 1, 4)), ((2, 1), (2, 1)), ((1, 2, 1), (1, 2, 3, 2, 1))],
)
def test_gradients(factors: Shape, shape: Shape) -> None:
    check_gradients(AXPY, factors, shape, shape)


def test_by_hand() -> None:
    factors = torch.tensor([[2.0, -1]])
    x, y = torch.tensor([[[1.0, 2], [3, 4]]]), torch.tensor([[[10.0, 20], [30, 40]]])
    assert one_layer(AXPY, (1, 2), (1, 2, 2), (1, 2, 2))(factors, x, y).tolist() == [[[12, 24], [27, 36]]]
    assert y.tolist() == [[[10, 20], [30, 40]]]


def test_flops() -> None:
    assert flops_of(AXPY, (2, 3), (2, 3, 4), (2, 3, 4)) == 48


@pytest.mark.parametrize(
    "shapes",
    [
        ((2, 3), (2, 3, 4), (2, 3, 5)),
        ((2, 4), (2, 3, 4), (2, 3, 4)),
        ((1, 3), (2, 3, 4), (2, 3, 4)),
        ((2, 3, 4), (2, 3, 4), (2, 3, 4)),
        ((2,), (2, 3, 4), (2, 3, 4)),
        ((2,), (2,), (2,)),
    ],
)
def test_refusals(shapes: tuple[Shape, Shape, Shape]) -> None:
    a, x, y = shapes
    check_refusal(
        '§bottom: "a" bottom: "x" bottom: "y" type: "Axpy" top: "z"',
        f'needs factors (N, channels) and two blobs of one shape (N, channels, …): "a" {a} and "x" {x} and "y" {y}',
        a=a,
        x=x,
        y=y,
    )
