from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from bpt.nn.kernels import linear
from tests.support.gradient_checker import check_gradients
from tests.support.one_layer import error_of, flops_of, one_layer


def ip(settings: str) -> str:
    return f'type: "InnerProduct" inner_product_param {{ {settings} }}'


@pytest.mark.parametrize(
    ("settings", "shape"),
    [
        ("num_output: 3", (2, 2, 3)),
        ("num_output: 3 transpose: true", (2, 5)),
        ("num_output: 2 axis: -1 bias_term: false", (2, 3, 4)),
        ("num_output: 2 axis: 0", (2, 3)),
    ],
)
def test_gradients(settings: str, shape: tuple[int, ...]) -> None:
    check_gradients(ip(settings), shape)


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
    monkeypatch.setattr(linear, "_multiply", missing)
    try:
        assert not linear.works()
        x, weight = torch.rand(500, 100), torch.rand(100, 100)
        assert torch.equal(linear.linear(x, weight, None), functional.linear(x, weight))
    finally:
        linear.works.cache_clear()


def test_flops() -> None:
    # 3 samples of 12 inputs and 4 outputs: 2 · 3 · 12 · 4, and 3 · 4 for the bias
    assert flops_of(ip("num_output: 4"), (3, 2, 3, 2)) == 288 + 12
    assert flops_of(ip("num_output: 4 bias_term: false"), (3, 2, 3, 2)) == 288


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("", "needs num_output, at least 1"),
        ("num_output: 0", "needs num_output, at least 1"),
        ("num_output: 2 axis: -3", 'axis -3 is outside [-2, 2), the axes of bottom "x0" (2, 3)'),
    ],
)
def test_errors(settings: str, message: str) -> None:
    assert error_of(ip(settings), (2, 3)) == message
