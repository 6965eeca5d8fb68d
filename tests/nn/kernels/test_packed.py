"""Packed convolutions and products against torch's own."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from bpt.nn.kernels import packed


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(("stride", "pad", "dilation", "group"), [((1,), (0,), (1,), 1), ((2, 1), (1, 2), (1, 2), 2)])
def test_as_torch(
    stride: tuple[int, ...], pad: tuple[int, ...], dilation: tuple[int, ...], group: int, last: bool
) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn((3, 4, 11, 9), generator=generator)
    x = x.contiguous(memory_format=torch.channels_last if last else torch.contiguous_format)
    filters, bias = torch.randn((6, 4 // group, 3, 3), generator=generator), torch.randn(6, generator=generator)
    with torch.no_grad():
        convolution = packed.pack(x, filters, bias, stride, pad, dilation, group)
        assert (convolution is None) == (not packed.works())
        if convolution is None:
            pytest.skip("this torch has no operators for it")
        plain = functional.conv2d(x, filters, bias, stride, pad, dilation, group)
        torch.testing.assert_close(convolution(x), plain)
        torch.testing.assert_close(convolution(x[:1]), plain[:1])  # another batch
        other = torch.randn(plain.shape, generator=generator)
        total = plain + other
        for over in (False, True):
            torch.testing.assert_close(convolution(x, other, over), total)


@pytest.mark.parametrize("bias", [False, True])
def test_products(bias: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    weight, b = torch.randn((1000, 700), generator=generator), torch.randn(1000, generator=generator)
    x = torch.randn((5, 700), generator=generator)
    with torch.no_grad():
        product = packed.pack_product(x, weight, b if bias else None)
        assert (product is None) == (not packed.multiplies())
        if product is None:
            pytest.skip("this torch has no operators for it")
        plain = x.double() @ weight.double().t() + b.double() * bias
        expected = plain.float()
        for each in (x, x.t().contiguous().t()):
            torch.testing.assert_close(product(each), expected, rtol=1e-5, atol=1e-4)


def test_only_what_it_is_for() -> None:
    x, filters = torch.zeros(1, 2, 4, 4), torch.zeros(3, 2, 1, 1)
    for bottom, weight in ((x.double(), filters.double()), (x[0], filters), (x[:0], filters)):
        assert packed.pack(bottom, weight, None, (1,), (0,), (1,), 1) is None


def test_small_products_are_not_packed() -> None:
    assert packed.pack_product(torch.zeros(1, 3), torch.zeros(4, 3), None) is None
    assert packed.pack_product(torch.zeros(9, 900).double(), torch.zeros(900, 900).double(), None) is None
