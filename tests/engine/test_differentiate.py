"""Backward by autograd's engine gives what ``torch.autograd`` gives, and never imports sympy."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import Tensor

from bpt.engine import differentiate
from bpt.engine.differentiate import add_gradients, autograd_engine, gradients

WITHOUT_SYMPY = """
import sys, torch
from bpt.engine.differentiate import add_gradients, gradients
leaf = torch.ones(3, requires_grad=True)
add_gradients([leaf * 2], [torch.ones(3)])
gradients([leaf * 2], [torch.ones(3)], [leaf])
sys.exit("sympy" in sys.modules)
"""


def blobs() -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """Leaves, blobs made of them, and diffs of these."""
    generator = torch.Generator().manual_seed(1)
    leaves = [torch.randn(2, 3, generator=generator, requires_grad=True) for _ in range(3)]
    first, second, _ = leaves
    tops = [(first * second).sum(), first.exp() @ second.T]
    return leaves, tops, [torch.tensor(0.3), torch.randn(2, 2, generator=generator)]


@pytest.fixture(params=["engine", "public"])
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "public":
        monkeypatch.setattr(differentiate, "autograd_engine", lambda: None)


def test_this_torch_has_the_engine_that_is_known() -> None:
    assert autograd_engine() is not None


@pytest.mark.usefixtures("_way")
def test_gradients_are_added_to_what_is_there() -> None:
    leaves, tops, diffs = blobs()
    add_gradients(tops, diffs, keep_graph=True)
    add_gradients(tops, diffs)
    same, others, _ = blobs()
    torch.autograd.backward(others, diffs)
    for leaf, other in zip(leaves[:2], same[:2], strict=True):
        assert leaf.grad is not None
        assert other.grad is not None
        assert leaf.grad.equal(other.grad * 2)
    assert leaves[2].grad is None


@pytest.mark.usefixtures("_way")
def test_gradients_of_some_leaves_leave_theirs_alone() -> None:
    leaves, tops, diffs = blobs()
    found = gradients(tops, diffs, leaves)
    same, others, _ = blobs()
    expected = torch.autograd.grad(others, same, diffs, allow_unused=True)
    for one, other in zip(found[:2], expected[:2], strict=True):
        assert one is not None
        assert other is not None
        assert one.equal(other)
    assert found[2] is None
    assert all(leaf.grad is None for leaf in leaves)


@pytest.mark.usefixtures("_way")
def test_a_diff_of_another_shape_is_an_error() -> None:
    leaf = torch.ones(2, 3, requires_grad=True)
    with pytest.raises(RuntimeError, match="shape"):
        add_gradients([leaf * 2], [torch.ones(4, 5)])


def test_an_engine_that_is_called_otherwise_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    class Other:
        def run_backward(self, tops: object) -> None:
            raise AssertionError

    monkeypatch.setattr(torch.autograd.Variable, "_execution_engine", Other())
    assert autograd_engine.__wrapped__() is None


def test_it_does_without_sympy() -> None:
    assert subprocess.run([sys.executable, "-c", WITHOUT_SYMPY], check=False).returncode == 0
