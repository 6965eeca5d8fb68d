from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from bpt.nn.kernels import linear
from tests.support.one_layer import one_layer


def ip(settings: str) -> str:
    return f'type: "InnerProduct" inner_product_param {{ {settings} }}'


def test_axis_0_makes_one_vector() -> None:
    layer = one_layer(ip("num_output: 2 axis: 0"), (2, 3))
    with torch.no_grad():
        layer.blobs[0].copy_(torch.tensor([[1.0, 1, 1, 1, 1, 1], [0, 1, 2, 3, 4, 5]]))
        layer.blobs[1].copy_(torch.tensor([10.0, 20]))
    # 0 + 1 + … + 5 = 15; 0 + 1 + 4 + 9 + 16 + 25 = 55
    assert torch.equal(layer(torch.arange(6.0).reshape(2, 3)), torch.tensor([25.0, 75]))


@pytest.mark.skipif(not linear.works(), reason="this torch has no oneDNN operator for matrices")
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("transpose", [True, False])
@pytest.mark.parametrize(("samples", "inputs", "outputs"), [(7, 33, 17), (1, 5, 1), (64, 20, 9)])
def test_onednn_is_blas(
    bias: bool, transpose: bool, samples: int, inputs: int, outputs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linear, "SMALL", 0)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(samples, inputs, generator=generator)
    weight = torch.randn(inputs, outputs, generator=generator).t() if transpose else torch.randn(outputs, inputs)
    leaves = [x, weight, torch.randn(outputs, generator=generator)][: 2 + bias]
    dy = torch.randn(outputs, samples, generator=generator).t()
    results = []
    for function in (linear.linear, functional.linear):
        inputs_now = [leaf.detach().requires_grad_() for leaf in leaves]
        y = function(inputs_now[0], inputs_now[1], inputs_now[2] if bias else None)
        results.append([y, *torch.autograd.grad(y, inputs_now, dy)])
    torch.testing.assert_close(*results)


def test_without_onednn(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> None:
        raise AttributeError

    linear.works.cache_clear()
    monkeypatch.setattr(linear, "multiply", missing)
    try:
        assert not linear.works()
        x, weight = torch.rand(500, 100), torch.rand(100, 100)
        assert torch.equal(linear.linear(x, weight, None), functional.linear(x, weight))
    finally:
        linear.works.cache_clear()
