from __future__ import annotations

import pytest
import torch

from tests.gradient_checker import check_gradients
from tests.one_layer import flops_of, one_layer

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


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("shape", [(), (5,), (2, 3, 1, 2)])
def test_gradients(body: str, shape: tuple[int, ...]) -> None:
    check_gradients(body, shape)


@pytest.mark.parametrize(
    ("body", "at_zero"),
    [(BODIES[0], 0.0), (BODIES[1], 0.2), (BODIES[2], 0.0), (BODIES[3], 0.2), (BODIES[4], 1.0), (BODIES[5], 0.4)],
)
def test_gradient_at_zero_is_the_slope_below(body: str, at_zero: float) -> None:
    x = torch.tensor([0.0, 1.0], requires_grad=True)
    one_layer(body, (2,))(x).sum().backward()
    assert torch.equal(x.grad, torch.tensor([at_zero, 1]))


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
    assert x.grad is not None
    assert x.grad[:4].tolist() == [-below, 1, 0, 0]


def test_relu6_gradients_around_six() -> None:
    for settings in ("", "relu_param { negative_slope: 0.2 }"):
        check_gradients(f'type: "ReLU6" {settings}', torch.tensor([[-7.5, 5.5], [6.5, 8.0]]))


def test_swish_with_beta_zero_is_half() -> None:
    x = torch.tensor([-3.0, 0.0, 8.0])
    assert torch.equal(one_layer('type: "Swish" swish_param { beta: 0 }', (3,))(x), x / 2)


def test_flops() -> None:
    assert flops_of('type: "ReLU"', (2, 3, 4)) == 24
