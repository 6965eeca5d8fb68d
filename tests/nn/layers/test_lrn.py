from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from bpt.nn.kernels import lrn_kernel as kernel
from tests.support.one_layer import one_layer


def lrn(settings: str) -> str:
    return f'type: "LRN" lrn_param {{ {settings} }}'


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
