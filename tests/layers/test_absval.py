from __future__ import annotations

import pytest
import torch

from tests.gradient_checker import check_gradients
from tests.one_layer import one_layer


def test_by_hand() -> None:
    x = torch.tensor([-2.0, 0.0, 3.0], requires_grad=True)
    top = one_layer('type: "AbsVal"', (3,))(x)
    assert top.tolist() == [2, 0, 3]
    top.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [-1, 0, 1]


@pytest.mark.parametrize("shape", [(), (5,), (2, 3, 1, 2)])
def test_gradients(shape: tuple[int, ...]) -> None:
    check_gradients('type: "AbsVal"', shape)
