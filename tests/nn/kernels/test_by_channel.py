"""Normalising and scaling by channel, in both layouts, against torch in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from bpt.nn.kernels import by_channel
from bpt.nn.kernels.channels_last import FORMATS

IMAGES = [(4, 16, 8, 8), (3, 5, 7, 3), (2, 300, 3, 3), (1, 3, 2, 1)]
VOLUMES = [(3, 16, 4, 6, 5), (3, 5, 7, 3, 5), (2, 300, 3, 1, 3), (1, 3, 1, 2, 1), (6, 8, 16, 16, 16)]
SHAPES = IMAGES + VOLUMES


def blob(shape: tuple[int, ...], seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).contiguous(memory_format=FORMATS[len(shape)])


def gradients(top: Tensor, diff: Tensor, leaves: list[Tensor]) -> list[Tensor]:
    return [top.detach(), *torch.autograd.grad(top, leaves, diff)]


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_normalise(shape: tuple[int, ...], last: bool) -> None:
    layout = FORMATS[len(shape)] if last else torch.contiguous_format
    x, diff = (blob(shape, 0) * 1.3 + 2).contiguous(memory_format=layout), blob(shape, 1)
    leaf = x.clone().requires_grad_()
    top, mean, variance = by_channel.normalise(leaf, 1e-5)
    exact = x.double().requires_grad_()
    expected = functional.batch_norm(exact, None, None, training=True, eps=1e-5)
    for ours, theirs in zip(gradients(top, diff, [leaf]), gradients(expected, diff.double(), [exact]), strict=True):
        torch.testing.assert_close(ours.double(), theirs, rtol=3e-6, atol=3e-6)
    axes = (0, *range(2, x.dim()))
    torch.testing.assert_close(mean.double(), x.double().mean(axes), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(variance.double(), x.double().var(axes), rtol=1e-6, atol=1e-6)
    assert top.is_contiguous(memory_format=layout)


@pytest.mark.parametrize("shape", SHAPES)
def test_scale(shape: tuple[int, ...]) -> None:
    x, diff = blob(shape, 2), blob(shape, 3)
    factors, summands = torch.rand(shape[1]) + 0.5, torch.rand(shape[1])
    leaves = [tensor.clone().requires_grad_() for tensor in (x, factors, summands)]
    exact = [tensor.double().requires_grad_() for tensor in (x, factors, summands)]
    ones = (1,) * (len(shape) - 2)
    expected = exact[0] * exact[1].view(-1, *ones) + exact[2].view(-1, *ones)
    for ours, theirs in zip(
        gradients(by_channel.scale(*leaves), diff, leaves), gradients(expected, diff.double(), exact), strict=True
    ):
        torch.testing.assert_close(ours.double(), theirs, rtol=3e-6, atol=2e-5)  # sums of up to 9,216 products
