from __future__ import annotations

import math

import pytest
import torch

from tests.gradient_checker import check_gradients
from tests.one_layer import one_layer


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


@pytest.mark.parametrize("shape", [(), (5,), (2, 3, 1, 2)])
def test_gradients(shape: tuple[int, ...]) -> None:
    check_gradients('type: "BNLL"', shape)
