"""Element-wise activations."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from bpt.base.errors import LayerError
from bpt.nn.net import Net
from tests.support.golden_cases import graph_of
from tests.support.one_layer import gradient_of, one_layer

BODIES = [
    'type: "ReLU"',
    'type: "ReLU" relu_param { negative_slope: 0.2 }',
    'type: "ReLU6"',
    'type: "ReLU6" relu_param { negative_slope: 0.2 }',
    'type: "ELU"',
    'type: "ELU" elu_param { alpha: 0.4 }',
    'type: "Sigmoid"',
    'type: "Swish"',
    'type: "Swish" swish_param { beta: -1.7 }',
    'type: "TanH"',
]


@pytest.mark.parametrize(
    ("body", "at_zero"),
    [(BODIES[0], 0.0), (BODIES[1], 0.2), (BODIES[2], 0.0), (BODIES[3], 0.2), (BODIES[4], 1.0), (BODIES[5], 0.4)],
)
def test_gradient_at_zero_is_the_slope_below(body: str, at_zero: float) -> None:
    x = torch.tensor([0.0, 1.0], requires_grad=True)
    one_layer(body, (2,))(x).sum().backward()
    assert torch.equal(gradient_of(x), torch.tensor([at_zero, 1]))


@pytest.mark.parametrize("body", BODIES)
def test_the_bottom_is_left_alone(body: str) -> None:
    x = torch.tensor([-1.0, 2.0])
    one_layer(body, (2,))(x)
    assert torch.equal(x, torch.tensor([-1.0, 2.0]))


@pytest.mark.parametrize(("settings", "below"), [("", 0.0), ("relu_param { negative_slope: 0.5 }", -0.5)])
def test_relu6(settings: str, below: float) -> None:
    x = torch.tensor([-1.0, 2, 6, 7, float("nan")], requires_grad=True)
    top = one_layer(f'type: "ReLU6" {settings}', (5,))(x)
    torch.testing.assert_close(top, torch.tensor([below, 2, 6, 6, float("nan")]), equal_nan=True)
    top[:4].sum().backward()
    assert gradient_of(x)[:4].tolist() == [-below, 1, 0, 0]


def test_swish_with_beta_zero_is_half() -> None:
    x = torch.tensor([-3.0, 0.0, 8.0])
    assert torch.equal(one_layer('type: "Swish" swish_param { beta: 0 }', (3,))(x), x / 2)


def test_by_hand() -> None:
    x = torch.tensor([-2.0, 0.0, 3.0], requires_grad=True)
    top = one_layer('type: "AbsVal"', (3,))(x)
    assert top.tolist() == [2, 0, 3]
    top.sum().backward()
    assert gradient_of(x).tolist() == [-1, 0, 1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_any_number(dtype: torch.dtype) -> None:
    numbers = [-800.0, -30.0, 0.0, 21.0, 49.0, 51.0, 800.0]
    x = torch.tensor(numbers, dtype=dtype, requires_grad=True)
    top = one_layer('type: "BNLL"', (7,))(x)
    expected = [max(n, 0) + math.log1p(math.exp(-abs(n))) for n in numbers]
    torch.testing.assert_close(
        top, torch.tensor(expected, dtype=dtype), rtol=1e-6 if dtype.itemsize == 4 else 0, atol=0
    )
    top.sum().backward()
    slopes = [1 / (1 + math.exp(-n)) if n > -100 else 0 for n in numbers]
    torch.testing.assert_close(x.grad, torch.tensor(slopes, dtype=dtype))


def test_the_gradient_passes_at_the_bounds() -> None:
    x = torch.tensor([-2.0, -1, 0.5, 2, 3], requires_grad=True)
    top = one_layer('type: "Clip" clip_param { min: -1 max: 2 }', (5,))(x)
    assert top.tolist() == [-1, -1, 0.5, 2, 2]
    top.sum().backward()
    assert gradient_of(x).tolist() == [0, 1, 1, 1, 0]


def test_in_place_the_gradient_passes_everywhere() -> None:
    """In Caffe the bottom holds what was clipped by the time that the gradient looks at it."""
    x = torch.tensor([-2.0, 0.5, 3], requires_grad=True)
    text = """layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 3 } } }
        layer { name: "L" type: "Clip" bottom: "x" top: "x" clip_param { min: -1 max: 2 } }"""
    layer: Any = Net(graph_of(text)).layers[-1]
    top = layer(x)
    assert top.tolist() == [-1, 0.5, 2]
    (top * torch.tensor([1.0, 2, 3])).sum().backward()
    assert gradient_of(x).tolist() == [1, 2, 3]


def test_elu_by_a_factor() -> None:
    """SELU, as NVIDIA's Caffe writes it; torch's own for comparison."""
    x = torch.linspace(-3, 3, 7)
    settings = "elu_param { alpha: 1.6732632423543772 lambda: 1.0507009873554805 }"
    torch.testing.assert_close(one_layer(f'type: "ELU" {settings}', (7,))(x), torch.selu(x))


@pytest.mark.parametrize(("settings", "expected"), [("", [0.0, 0, 1, 1]), ("threshold: 1", [0.0, 0, 0, 1])])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equal_is_not_above(settings: str, expected: list[float], dtype: torch.dtype) -> None:
    x = torch.tensor([-1.0, 0, 1, 2], dtype=dtype, requires_grad=True)
    top = one_layer(f'type: "Threshold" threshold_param {{ {settings} }}', (4,))(x)
    assert torch.equal(top, torch.tensor(expected, dtype=dtype))
    assert not top.requires_grad


def test_training_through_it_is_refused() -> None:
    net = """
        layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 } } }
        layer { name: "ip" type: "InnerProduct" bottom: "x" top: "a" inner_product_param { num_output: 3 } }
        layer { name: "L" type: "Threshold" bottom: "a" top: "y" }
        layer { name: "loss" type: "Reduction" bottom: "y" top: "loss" loss_weight: 1 }"""
    with pytest.raises(LayerError, match=r'^layer "L": Threshold cannot give bottom "a" a diff'):
        graph_of(net)


@pytest.mark.parametrize(("settings", "slopes"), [("", [0.25, 0.25]), ("filler { value: 0.5 }", [0.5, 0.5])])
def test_start(settings: str, slopes: list[float]) -> None:
    layer = one_layer(f'type: "PReLU" prelu_param {{ {settings} }}', (1, 2))
    assert layer.blobs[0].tolist() == slopes


def test_gradient_at_zero_is_the_slope() -> None:
    x = torch.zeros(1, 2, requires_grad=True)
    layer = one_layer('type: "PReLU"', (1, 2))
    layer(x).sum().backward()
    assert gradient_of(x).tolist() == [[0.25, 0.25]]
    assert layer.blobs[0].grad.tolist() == [0, 0]
