"""Packed convolutions against torch's own."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from bpt.kernels import packed


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize(("stride", "pad", "dilation", "group"), [((1,), (0,), (1,), 1), ((2, 1), (1, 2), (1, 2), 2)])
def test_as_torch(
    stride: tuple[int, ...], pad: tuple[int, ...], dilation: tuple[int, ...], group: int, relu: bool, last: bool
) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn((3, 4, 11, 9), generator=generator)
    x = x.contiguous(memory_format=torch.channels_last if last else torch.contiguous_format)
    filters, bias = torch.randn((6, 4 // group, 3, 3), generator=generator), torch.randn(6, generator=generator)
    with torch.no_grad():
        convolution = packed.pack(x, filters, bias, stride, pad, dilation, group, relu)
        assert (convolution is None) == (not packed.works())
        if convolution is None:
            pytest.skip("this torch has no operators for it")
        plain = functional.conv2d(x, filters, bias, stride, pad, dilation, group)
        torch.testing.assert_close(convolution(x), plain.relu() if relu else plain)
        torch.testing.assert_close(convolution(x[:1]), (plain.relu() if relu else plain)[:1])  # another batch


def test_only_what_it_is_for() -> None:
    x, filters = torch.zeros(1, 2, 4, 4), torch.zeros(3, 2, 1, 1)
    for bottom, weight in ((x.double(), filters.double()), (x[0], filters), (x[:0], filters)):
        assert packed.pack(bottom, weight, None, (1,), (0,), (1,), 1, False) is None
