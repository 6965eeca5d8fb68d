"""Normalising and scaling by channel, in both layouts, against torch in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from bpt.kernels import by_channel

SHAPES = [(4, 16, 8, 8), (3, 5, 7, 3), (2, 300, 3, 3), (1, 3, 2, 1)]


def image(shape: tuple[int, ...], seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).contiguous(memory_format=torch.channels_last)


def gradients(top: Tensor, diff: Tensor, leaves: list[Tensor]) -> list[Tensor]:
    return [top.detach(), *torch.autograd.grad(top, leaves, diff)]


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("shape", SHAPES)
def test_normalise(shape: tuple[int, ...], layout: torch.memory_format) -> None:
    x, diff = (image(shape, 0) * 1.3 + 2).contiguous(memory_format=layout), image(shape, 1)
    leaf = x.clone().requires_grad_()
    top, mean, variance = by_channel.normalise(leaf, 1e-5)
    exact = x.double().requires_grad_()
    expected = functional.batch_norm(exact, None, None, training=True, eps=1e-5)
    for ours, theirs in zip(gradients(top, diff, [leaf]), gradients(expected, diff.double(), [exact]), strict=True):
        torch.testing.assert_close(ours.double(), theirs, rtol=3e-6, atol=3e-6)
    torch.testing.assert_close(mean.double(), x.double().mean((0, 2, 3)), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(variance.double(), x.double().var((0, 2, 3)), rtol=1e-6, atol=1e-6)
    assert top.is_contiguous(memory_format=layout)


@pytest.mark.parametrize("shape", SHAPES)
def test_scale(shape: tuple[int, ...]) -> None:
    x, diff = image(shape, 2), image(shape, 3)
    factors, summands = torch.rand(shape[1]) + 0.5, torch.rand(shape[1])
    leaves = [tensor.clone().requires_grad_() for tensor in (x, factors, summands)]
    exact = [tensor.double().requires_grad_() for tensor in (x, factors, summands)]
    expected = exact[0] * exact[1].view(1, -1, 1, 1) + exact[2].view(1, -1, 1, 1)
    for ours, theirs in zip(
        gradients(by_channel.scale(*leaves), diff, leaves), gradients(expected, diff.double(), exact), strict=True
    ):
        torch.testing.assert_close(ours.double(), theirs, rtol=3e-6, atol=3e-6)
