from __future__ import annotations

import pytest
import torch

from tests.gradient_checker import check_gradients
from tests.layers.refusals import check_refusal
from tests.one_layer import one_layer


def test_the_gradient_passes_at_the_bounds() -> None:
    x = torch.tensor([-2.0, -1, 0.5, 2, 3], requires_grad=True)
    top = one_layer('type: "Clip" clip_param { min: -1 max: 2 }', (5,))(x)
    assert top.tolist() == [-1, -1, 0.5, 2, 2]
    top.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [0, 1, 1, 1, 0]


@pytest.mark.parametrize("shape", [(), (5,), (2, 3, 1, 2)])
def test_gradients(shape: tuple[int, ...]) -> None:
    check_gradients('type: "Clip" clip_param { min: -0.9 max: 0.7 }', shape)


def test_refusals() -> None:
    check_refusal('§type: "Clip" top: "y"', "needs clip_param { min max }", a=(2,))
    for least in ("2", "nan"):
        body = f'type: "Clip" top: "y" clip_param {{ §min: {least} max: 1 }}'
        check_refusal(body, f"min {least} must be at most max 1", a=(2,))
