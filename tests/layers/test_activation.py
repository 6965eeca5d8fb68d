from __future__ import annotations

import pytest
import torch

from tests.gradient_checker import check_gradients
from tests.one_layer import flops_of, one_layer

BODIES = ['type: "ReLU"', 'type: "ReLU" relu_param { negative_slope: 0.2 }', 'type: "Sigmoid"', 'type: "TanH"']


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("shape", [(), (5,), (2, 3, 1, 2)])
def test_gradients(body: str, shape: tuple[int, ...]) -> None:
    check_gradients(body, shape)


@pytest.mark.parametrize(("body", "at_zero"), [(BODIES[0], 0.0), (BODIES[1], 0.2)])
def test_relu_gradient_at_zero_is_the_slope(body: str, at_zero: float) -> None:
    x = torch.tensor([0.0, 1.0], requires_grad=True)
    one_layer(body, (2,))(x).sum().backward()
    assert torch.equal(x.grad, torch.tensor([at_zero, 1]))


@pytest.mark.parametrize("body", BODIES)
def test_the_bottom_is_left_alone(body: str) -> None:
    x = torch.tensor([-1.0, 2.0])
    one_layer(body, (2,))(x)
    assert torch.equal(x, torch.tensor([-1.0, 2.0]))


def test_flops() -> None:
    assert flops_of('type: "ReLU"', (2, 3, 4)) == 24
