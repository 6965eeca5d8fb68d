from __future__ import annotations

import pytest
import torch

from tests.gradient_checker import check_gradients
from tests.one_layer import error_of, one_layer


@pytest.mark.parametrize("settings", ["", "channel_shared: true"])
@pytest.mark.parametrize("shape", [(3, 2), (2, 3, 5), (2, 3, 2, 1)])
def test_gradients(settings: str, shape: tuple[int, ...]) -> None:
    check_gradients(f'type: "PReLU" prelu_param {{ {settings} }}', shape)


@pytest.mark.parametrize(("settings", "slopes"), [("", [0.25, 0.25]), ("filler { value: 0.5 }", [0.5, 0.5])])
def test_start(settings: str, slopes: list[float]) -> None:
    layer = one_layer(f'type: "PReLU" prelu_param {{ {settings} }}', (1, 2))
    assert layer.blobs[0].tolist() == slopes


def test_gradient_at_zero_is_the_slope() -> None:
    x = torch.zeros(1, 2, requires_grad=True)
    layer = one_layer('type: "PReLU"', (1, 2))
    layer(x).sum().backward()
    assert x.grad.tolist() == [[0.25, 0.25]]
    assert layer.blobs[0].grad.tolist() == [0, 0]


def test_a_bottom_without_channels() -> None:
    assert error_of('type: "PReLU"', (3,)) == "needs a bottom of at least 2 axes (N, channels), not shape (3,)"
