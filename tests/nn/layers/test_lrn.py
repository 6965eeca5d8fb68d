from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from bpt.nn.kernels import lrn_kernel as kernel
from tests.support.gradient_checker import check_gradients
from tests.support.one_layer import error_of, flops_of, one_layer


def lrn(settings: str) -> str:
    return f'type: "LRN" lrn_param {{ {settings} }}'


@pytest.mark.parametrize("region", ["ACROSS_CHANNELS", "WITHIN_CHANNEL"])
@pytest.mark.parametrize("settings", ["local_size: 3 alpha: 0.5 beta: 0.6 k: 2", "local_size: 5", "local_size: 1"])
@pytest.mark.parametrize("shape", [(2, 3, 3, 4), (1, 1, 2, 1)])
def test_gradients(region: str, settings: str, shape: tuple[int, ...]) -> None:
    check_gradients(lrn(f"{settings} norm_region: {region}"), shape)


@pytest.mark.parametrize("size", [1, 3, 5, 9])
@pytest.mark.parametrize("beta", [0.75, 0.5])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("shape", [(5, 7, 3, 4), (3, 4, 1, 1), (4, 1, 3, 2), (2, 6, 1, 3)])
@pytest.mark.parametrize("block", [1, 100, 10**6])  # elements: one row, a few and a rest, all at once
def test_across_is_torchs(
    size: int,
    beta: float,
    layout: torch.memory_format,
    shape: tuple[int, ...],
    block: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kernel, "BLOCK", block)
    x, dy = torch.randn(2, *shape, generator=torch.Generator().manual_seed(size)).double()
    x = x.contiguous(memory_format=layout).requires_grad_()
    y = kernel.lrn_across(x, size, 0.7, beta, 1.5)
    wanted = functional.local_response_norm(x, size, 0.7, beta, 1.5)
    assert y.is_contiguous(memory_format=layout)
    torch.testing.assert_close(y, wanted)
    torch.testing.assert_close(torch.autograd.grad(y, x, dy), torch.autograd.grad(wanted, x, dy))


def test_across_of_a_bottom_with_gaps() -> None:
    x = torch.rand(2, 3, 4, 10)[..., ::2]
    torch.testing.assert_close(
        kernel.lrn_across(x, 3, 0.7, 0.75, 1.5), functional.local_response_norm(x, 3, 0.7, 0.75, 1.5)
    )


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
