from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.gradient_checker import check_gradients
from tests.one_layer import error_of, flops_of, one_layer


def lrn(settings: str) -> str:
    return f'type: "LRN" lrn_param {{ {settings} }}'


def slow_lrn_across(x: Tensor, n: int, alpha: float, beta: float, k: float) -> Tensor:
    """The definition in float64, one channel at a time."""
    squares = x.double().square()
    channels = x.shape[1]
    sums = [squares[:, max(0, c - n // 2) : c + n // 2 + 1].sum(1) for c in range(channels)]
    return x * (k + alpha / n * torch.stack(sums, 1)) ** -beta


@pytest.mark.parametrize("region", ["ACROSS_CHANNELS", "WITHIN_CHANNEL"])
@pytest.mark.parametrize("settings", ["local_size: 3 alpha: 0.5 beta: 0.6 k: 2", "local_size: 5", "local_size: 1"])
@pytest.mark.parametrize("shape", [(2, 3, 3, 4), (1, 1, 2, 1)])
def test_gradients(region: str, settings: str, shape: tuple[int, ...]) -> None:
    check_gradients(lrn(f"{settings} norm_region: {region}"), shape)


def test_within_ignores_k() -> None:
    x = torch.rand(1, 2, 4, 4)
    with_k, without = (one_layer(lrn(f"norm_region: WITHIN_CHANNEL {k}"), (1, 2, 4, 4)) for k in ("k: 3", ""))
    assert torch.equal(with_k(x), without(x))


def test_flops() -> None:
    # square, power, product and the multiply-add with alpha and k: 5; and a sum of 3, or of 3 · 3
    assert flops_of(lrn("local_size: 3"), (2, 3, 4, 5)) == 120 * (3 + 5)
    assert flops_of(lrn("local_size: 3 norm_region: WITHIN_CHANNEL"), (2, 3, 4, 5)) == 120 * (9 + 5)


@pytest.mark.parametrize(
    ("settings", "shape", "message"),
    [
        ("local_size: 4", (1, 3, 2, 2), "local_size must be odd, not 4"),
        ("local_size: 0", (1, 3, 2, 2), "local_size must be odd, not 0"),
        ("", (1, 3, 2), "needs a bottom of 4 axes (N, channels, H, W), not shape (1, 3, 2)"),
    ],
)
def test_errors(settings: str, shape: tuple[int, ...], message: str) -> None:
    assert error_of(lrn(settings), shape) == message
