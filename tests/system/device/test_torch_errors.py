"""What torch raises from a kernel reaches the user in one line that names the layer."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from bpt.base.errors import DataError, RunError
from bpt.engine.operator import Operator
from bpt.graph.segments import Segment, cut, per_layer, whole
from bpt.nn.net import Net
from bpt.system.device.torch_errors import is_out_of_memory, kernel_error
from tests.support.golden_cases import graph_of

NET = """
layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 } } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "y" inner_product_param { num_output: 4 } }
layer { name: "relu" type: "ReLU" bottom: "y" top: "z" loss_weight: 1 }
"""


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. TunedSetting to allocate 2.00 GiB."), True),
        (MemoryError(), True),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried …"), True),
        (RuntimeError("shapes do not fit"), False),
        (ValueError("can't allocate memory"), False),
    ],
)
def test_which_errors_mean_too_little_memory(error: BaseException, expected: bool) -> None:
    assert is_out_of_memory(error) is expected


def test_what_the_system_says_when_memory_is_refused() -> None:
    """The words of the torch that is installed: 2⁶⁰ bytes no machine has."""
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**58)
    assert is_out_of_memory(caught.value)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (RuntimeError("shapes do not fit\nException raised from addmm"), 'layer "ip": shapes do not fit'),
        (RuntimeError(), 'layer "ip": RuntimeError'),
        (MemoryError(), 'layer "ip": out of memory; a smaller batch_size needs less'),
    ],
)
def test_one_line(error: BaseException, message: str) -> None:
    assert str(kernel_error('layer "ip"', error)) == message


def test_the_bottoms_are_shown() -> None:
    bottoms = (torch.zeros(2, 3), torch.zeros(()))
    assert str(kernel_error('layer "ip"', RuntimeError("no"), bottoms)) == (
        'layer "ip": no (bottoms of shape (2, 3), ())'
    )


class Failing(torch.autograd.Function):
    """The identity; its backward raises ``error``."""

    error: Exception

    @staticmethod
    def forward(ctx: object, bottom: Tensor) -> Tensor:
        return bottom.clone()

    @staticmethod
    def backward(ctx: object, *diffs: Tensor) -> Tensor:
        raise Failing.error


def operator_with(cut_into: tuple[Segment, ...] | None, monkeypatch: pytest.MonkeyPatch) -> Operator:
    """A net whose ReLU fails in the backward pass."""
    net = Net(graph_of(NET))
    monkeypatch.setattr(net.layers[2], "forward", Failing.apply)
    monkeypatch.setattr(net.layers[2], "overwrites", ())  # or it would not be called
    return Operator(net, cut_into)


def backward_error(operator: Operator) -> str:
    for index in range(len(operator.segments)):
        operator.forward(index)
    with pytest.raises(RunError) as caught:
        operator.backward(len(operator.segments) - 1)
    return str(caught.value)


@pytest.mark.parametrize(
    ("starts", "message"),
    [
        ((0,), 'backward pass, layers "in" to "relu": no kernel; debug_info: true tells which layer'),
        ((0, 1), 'backward pass, layers "ip" to "relu": no kernel; debug_info: true tells which layer'),
        ((0, 1, 2), 'backward pass, layer "relu": no kernel'),
    ],
)
def test_backward_names_what_it_can(starts: tuple[int, ...], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Failing, "error", RuntimeError("no kernel\nmore"), raising=False)
    assert backward_error(operator_with(cut(graph_of(NET), starts), monkeypatch)) == message


def test_too_little_memory_in_the_backward_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Failing, "error", torch.OutOfMemoryError("…"), raising=False)
    assert backward_error(operator_with(whole(graph_of(NET)), monkeypatch)) == (
        'backward pass, layers "in" to "relu": out of memory; a smaller batch_size needs less'
    )


@pytest.mark.parametrize("error", [DataError("record 3 is damaged"), RunError("of our own")])
def test_our_own_errors_pass_unchanged(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*bottoms: Tensor) -> Tensor:
        raise error

    net = Net(graph_of(NET))
    monkeypatch.setattr(net.layers[1], "forward", fail)
    with pytest.raises(RunError) as caught:
        Operator(net).forward(0)
    assert caught.value is error


def test_a_kernel_that_fails_in_the_forward_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*bottoms: Tensor) -> Tensor:
        return torch.ones(2, 3) @ torch.ones(4, 5)

    net = Net(graph_of(NET))
    monkeypatch.setattr(net.layers[1], "forward", fail)
    operator = Operator(net, per_layer(net.graph))
    operator.forward(0)
    with pytest.raises(RunError, match=r'^layer "ip": .* \(bottoms of shape \(2, 3\)\)$') as caught:
        operator.forward(1)
    assert isinstance(caught.value.__cause__, RuntimeError)  # for whoever wants to know more
