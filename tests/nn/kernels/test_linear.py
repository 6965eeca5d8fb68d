"""Products by oneDNN, as torch's tools record them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from bpt.nn.kernels.algorithm import Algorithm, KernelRole
from bpt.nn.kernels.linear import SMALL, linear, linear_kernels, works
from tests.support.one_layer import one_layer


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch.jit is on its way out
def test_a_trace_of_a_large_product_can_be_saved(tmp_path: Path) -> None:
    x, weight = torch.randn(64, 512), torch.randn(1024, 512)
    assert x.numel() * len(weight) >= SMALL
    torch.jit.save(
        torch.jit.trace(lambda rows: linear(rows, weight, None), x, check_trace=False), str(tmp_path / "product.pt")
    )
    saved = torch.jit.load(str(tmp_path / "product.pt"))
    assert_close(saved(x), x @ weight.t(), rtol=1e-5, atol=1e-4)


SMALL_ROWS, LARGE_ROWS = 3, 64  # with 200 inputs and 200 outputs: below and above SMALL


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.mark.parametrize("rows", [SMALL_ROWS, LARGE_ROWS])
@pytest.mark.parametrize("library", [Algorithm.ONEDNN, Algorithm.BLAS, Algorithm.TORCH])
@pytest.mark.parametrize("role", KernelRole)
def test_each_library(rows: int, library: Algorithm, role: KernelRole) -> None:
    leaves = [draw(rows, 200).requires_grad_(), draw(200, 200).requires_grad_(), draw(200).requires_grad_()]
    top, dy = linear(leaves[0], leaves[1], leaves[2], {role: library}), draw(rows, 200)
    ours = [top, *torch.autograd.grad(top, leaves, dy)]
    x, weight, bias = (leaf.detach().double() for leaf in leaves)
    expected = [x @ weight.t() + bias, dy.double() @ weight, dy.double().t() @ x, dy.double().sum(0)]
    for found, exact in zip(ours, expected, strict=True):
        assert (found - exact).norm() <= 1e-5 * exact.norm()


@pytest.mark.skipif(not works(), reason="this torch has no such operator")
def test_which_libraries_are_tried() -> None:
    """That which the rule does not choose."""
    for rows, other in ((SMALL_ROWS, Algorithm.ONEDNN), (LARGE_ROWS, Algorithm.BLAS)):
        kernels = linear_kernels(draw(rows, 200), draw(200, 200), None)
        assert {role: set(by_library) for role, by_library in kernels.items()} == {
            role: {Algorithm.TORCH, other} for role in KernelRole
        }
        for role in KernelRole:
            ours, others = (kernels[role][library]() for library in (Algorithm.TORCH, other))
            assert isinstance(ours, torch.Tensor)
            assert isinstance(others, torch.Tensor)
            assert_close(ours, others, rtol=1e-5, atol=1e-4)
    assert linear_kernels(draw(3, 200).double(), draw(200, 200).double(), None) == {}
    assert linear_kernels(draw(3, 2, 200), draw(200, 200), None) == {}


@pytest.mark.skipif(not works(), reason="this torch has no such operator")
@pytest.mark.parametrize("transpose", ["false", "true"])
def test_a_layer_by_another_library(transpose: str) -> None:
    settings = f'inner_product_param {{ num_output: 20 transpose: {transpose} weight_filler {{ type: "xavier" }} }}'
    layer = one_layer(f'type: "InnerProduct" {settings}', (4, 3, 5))
    x = draw(4, 3, 5)
    expected = layer(x)
    layer.algorithms = {KernelRole.FORWARD: Algorithm.ONEDNN}
    assert_close(layer(x), expected)
    assert "LinearBy" in type(layer(x).grad_fn).__name__
    assert set(layer.kernels(x)) == set(KernelRole)
