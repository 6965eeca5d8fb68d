from __future__ import annotations

import pytest
import torch

from tests.gradient_checker import check_gradients
from tests.one_layer import error_of, flops_of, one_layer


def ip(settings: str) -> str:
    return f'type: "InnerProduct" inner_product_param {{ {settings} }}'


@pytest.mark.parametrize(
    ("settings", "shape"),
    [
        ("num_output: 3", (2, 2, 3)),
        ("num_output: 3 transpose: true", (2, 5)),
        ("num_output: 2 axis: -1 bias_term: false", (2, 3, 4)),
        ("num_output: 2 axis: 0", (2, 3)),
    ],
)
def test_gradients(settings: str, shape: tuple[int, ...]) -> None:
    check_gradients(ip(settings), shape)


def test_axis_0_makes_one_vector() -> None:
    layer = one_layer(ip("num_output: 2 axis: 0"), (2, 3))
    with torch.no_grad():
        layer.blobs[0].copy_(torch.tensor([[1.0, 1, 1, 1, 1, 1], [0, 1, 2, 3, 4, 5]]))
        layer.blobs[1].copy_(torch.tensor([10.0, 20]))
    # 0 + 1 + … + 5 = 15; 0 + 1 + 4 + 9 + 16 + 25 = 55
    assert torch.equal(layer(torch.arange(6.0).reshape(2, 3)), torch.tensor([25.0, 75]))


def test_flops() -> None:
    # 3 samples of 12 inputs and 4 outputs: 2 · 3 · 12 · 4, and 3 · 4 for the bias
    assert flops_of(ip("num_output: 4"), (3, 2, 3, 2)) == 288 + 12
    assert flops_of(ip("num_output: 4 bias_term: false"), (3, 2, 3, 2)) == 288


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("", "needs num_output, at least 1"),
        ("num_output: 0", "needs num_output, at least 1"),
        ("num_output: 2 axis: -3", 'axis -3 is outside [-2, 2), the axes of bottom "x0" (2, 3)'),
    ],
)
def test_errors(settings: str, message: str) -> None:
    assert error_of(ip(settings), (2, 3)) == message
