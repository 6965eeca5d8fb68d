"""Max pooling of contiguous tensors, bit for bit as torch's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from bpt.nn.kernels import max_pool
from bpt.nn.kernels.channels_last import channels_last
from bpt.nn.kernels.max_pool import NARROW, SMALL, max_pool_with_places

CASES = {
    "2x2": ((5, 16, 30, 31), (2, 2), (2, 2), (0, 0), True),
    "overlapping": ((5, 8, 41, 40), (3, 3), (2, 2), (1, 1), True),
    "per axis": ((9, 8, 29, 33), (3, 2), (1, 2), (1, 0), False),
    "one sample": ((1, 20, 50, 52), (3, 3), (2, 2), (0, 0), True),
    "volumes": ((3, 8, 14, 15, 16), (3, 2, 2), (2, 1, 2), (1, 1, 0), True),
}


@pytest.fixture(autouse=True)
def on_one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def numbers(*shape: int) -> Tensor:
    """Random numbers with many equal maxima, and some that are not finite."""
    x = torch.randint(0, 4, shape, generator=torch.Generator().manual_seed(1)).float()
    x.view(-1)[::97] = torch.nan
    x[..., 5, 5:9] = -torch.inf
    x[0, 0] = -torch.inf
    x.view(-1)[50::131] = torch.inf
    return x.requires_grad_()


def takes_parts(x: Tensor) -> bool:
    """Whether a tensor is pooled in parts that are channels-last."""
    axes = x.dim() - 2
    y, _ = max_pool_with_places(x.detach().requires_grad_(), (2,) * axes, (2,) * axes, (0,) * axes, True)
    return y.grad_fn is not None and y.grad_fn.name().startswith("_MaxPool")


@pytest.mark.parametrize(("shape", "kernel", "stride", "pad", "ceil"), CASES.values(), ids=CASES.keys())
def test_maxima_places_and_diffs(
    shape: tuple[int, ...],
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    pad: tuple[int, ...],
    ceil: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(max_pool, "BLOCK", 30_000)  # several parts, and a last one that is smaller
    x = numbers(*shape)
    assert takes_parts(x)
    y, places = max_pool_with_places(x, kernel, stride, pad, ceil)
    plain, index = max_pool.POOL[x.dim()](x, kernel, stride, pad, (1,) * len(kernel), ceil)
    torch.testing.assert_close(y, plain, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(places, index) and not places.requires_grad
    assert y.is_contiguous() and places.is_contiguous()
    dy = torch.randn(y.shape, generator=torch.Generator().manual_seed(2))
    for diff in (dy, channels_last(dy)):
        ours, theirs = (torch.autograd.grad(top, x, diff, retain_graph=True)[0] for top in (y, plain))
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("shape", [(2, 16, 40, 41), (2, 8, 15, 15, 16)])
def test_gradient_of_a_gradient(shape: tuple[int, ...]) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(3)).requires_grad_()
    twos, ones, zeros = ((number,) * (len(shape) - 2) for number in (2, 1, 0))
    tops = (
        max_pool_with_places(x, twos, twos, zeros, True)[0],
        max_pool.POOL[len(shape)](x, twos, twos, zeros, ones, True)[0],
    )
    grads = []
    for top in tops:
        (first,) = torch.autograd.grad((top**3).sum(), x, create_graph=True)
        grads.append(torch.autograd.grad((first**2).sum(), x)[0])
    assert torch.equal(*grads) and grads[0].any()


def test_top_can_be_overwritten() -> None:
    x = numbers(5, 16, 30, 31)
    top = max_pool_with_places(x, (2, 2), (2, 2), (0, 0), True)[0].relu_()
    plain = max_pool.POOL[4](x, (2, 2), (2, 2), (0, 0), (1, 1), True)[0].relu()
    ours, theirs = (torch.autograd.grad(each.nansum(), x)[0] for each in (top, plain))
    assert torch.equal(ours, theirs)


def test_what_torch_pools_as_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    side = 100
    assert takes_parts(torch.zeros(2, NARROW, side, side))
    assert not takes_parts(torch.zeros(2, NARROW - 1, side, side))
    assert not takes_parts(torch.zeros(1, NARROW, SMALL // NARROW // side - 1, side))
    assert not takes_parts(channels_last(torch.zeros(2, NARROW, side, side)))
    assert not takes_parts(torch.zeros(2, NARROW, side, side).double())
    assert not takes_parts(torch.zeros(2, NARROW, side**2))
    torch.set_num_threads(4)
    assert not takes_parts(torch.zeros(2, NARROW, side, side))  # 40,000 elements for each thread
    torch.set_num_threads(1)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert not takes_parts(torch.zeros(2, NARROW, side, side))


@pytest.mark.filterwarnings("ignore:.*torch.jit.trace.* is deprecated:DeprecationWarning")
def test_traces_have_the_plain_operator() -> None:
    def pool(x: Tensor) -> Tensor:
        return max_pool_with_places(x, (2, 2), (2, 2), (0, 0), True)[0]

    x = torch.randn((2, 16, 64, 64), generator=torch.Generator().manual_seed(4))
    trace = torch.jit.trace(pool, (x,))
    assert "aten::max_pool2d_with_indices" in str(trace.graph)
    assert "_MaxPool" not in str(trace.graph)
    assert torch.equal(trace(x + 1), pool(x + 1))
