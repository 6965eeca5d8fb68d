"""Backward passes in two parts: the same gradients to the last bit, and no kernel runs twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from bpt.engine import differentiate
from bpt.engine.compute import LibraryCompute, TwoPartCompute
from bpt.engine.operator import Operator
from bpt.graph.layer_graph import LayerGraph
from bpt.nn.kernels.algorithm import Algorithm, KernelRole
from bpt.nn.net import Net
from bpt.nn.pass_context import PassContext
from tests.support.cut_nets import layer
from tests.support.golden_cases import graph_of
from tests.support.sharded_operators import SEED, conv, fc

DATA = """layer { name: "in" type: "DummyData" top: "x" top: "y"
    dummy_data_param { shape { dim: 64 dim: 2 dim: 12 dim: 12 } shape { dim: 64 }
      data_filler { type: "gaussian" } data_filler { type: "constant" value: 1 } } }"""
# The product of "a" is large enough for ours, that of "b" is torch's; "s" and "t" share their weights.
NET = "\n".join(
    [
        DATA,
        conv("c", "x"),
        layer("BatchNorm", "c", "n"),
        layer("Scale", "n", "m", "scale_param { bias_term: true }"),
        layer("ReLU", "m", "m"),
        conv("d", "m"),
        fc("a", "d", 200),
        fc("s", "a", 200, 'param { name: "w" } param { name: "v" }'),
        fc("t", "s", 200, 'param { name: "w" } param { name: "v" }'),
        fc("b", "t", 3),
        layer("SoftmaxWithLoss", "b y", "l"),
    ]
)
LEFT = {"c/0", "c/1", "d/0", "d/1", "a/0", "a/1", "b/0", "b/1"}
"""The parameters whose gradients the second part computes."""


@pytest.fixture(params=["engine", "public"])
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "public":
        monkeypatch.setattr(differentiate, "autograd_engine", lambda: None)


def operator_of(compute: type[LibraryCompute]) -> Operator:
    operator = Operator(Net(graph_of(NET), PassContext(SEED)), compute=compute)
    operator.begin_pass(0, 0)
    operator.forward(0)
    return operator


def gradients(operator: Operator) -> dict[str, Tensor]:
    graph: LayerGraph = operator.net.graph
    found = {}
    for param in graph.learnable:
        gradient = operator.net.value(param).grad
        if gradient is not None:
            found[f"{graph.nodes[param.layer].name}/{param.blob}"] = gradient
    return found


@pytest.mark.usefixtures("_way")
def test_gradients() -> None:
    whole, split = operator_of(LibraryCompute), operator_of(TwoPartCompute)
    for _ in range(2):  # gradients add up
        whole.backward(0)
        split.backward(0)
        if not gradients(split).keys() & LEFT:
            assert gradients(split).keys() == gradients(whole).keys() - LEFT
        split.backward_weights(0)
        split.backward_weights(0)  # nothing is left
        for operator in (whole, split):
            operator.begin_pass(0, 1)
            operator.forward(0)
    expected, found = gradients(whole), gradients(split)
    assert expected.keys() == found.keys() and found.keys() > LEFT
    for name, gradient in expected.items():
        assert torch.equal(found[name], gradient), name


@pytest.mark.usefixtures("_way")
def test_gradients_of_kernels_by_other_algorithms() -> None:
    """Those that an earlier trial may choose."""
    whole, split = operator_of(LibraryCompute), operator_of(TwoPartCompute)
    for operator in (whole, split):
        names = {node.name: operator.net.layer(node) for node in operator.net.graph.nodes}
        for name in ("c", "d"):
            names[name].algorithms = {KernelRole.FORWARD: Algorithm.PATCHES, KernelRole.BY_WEIGHTS: Algorithm.PATCHES}
        names["a"].algorithms = {KernelRole.BY_WEIGHTS: Algorithm.BLAS}
        operator.begin_pass(0, 1)
        operator.forward(0)
        operator.backward(0)
    assert not gradients(split).keys() & LEFT
    split.backward_weights(0)
    expected, found = gradients(whole), gradients(split)
    assert expected.keys() == found.keys()
    for name, gradient in expected.items():
        assert torch.equal(found[name], gradient), name


class Products(TorchDispatchMode):
    """Notes which gradients each convolution computes, and counts products of matrices."""

    def __init__(self) -> None:
        super().__init__()
        self.masks: list[list[bool]] = []
        self.matrices = 0

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = func.overloadpacket.__name__
        if name == "convolution_backward":
            self.masks.append(args[-1])
        self.matrices += name in ("mm", "addmm", "_linear_pointwise")
        return func(*args, **(kwargs or {}))


def test_each_kernel_runs_once() -> None:
    operator = operator_of(TwoPartCompute)
    with Products() as inputs:
        operator.backward(0)
    with Products() as weights:
        operator.backward_weights(0)
    # The bottom of "c" wants no diff; that of "s" and "t" takes both gradients in the first part.
    assert (inputs.masks, inputs.matrices) == ([[True, False, False]], 4 + 2)
    assert sorted(weights.masks) == [[False, True, True]] * 2
    assert weights.matrices == 2


def test_nothing_wants_a_gradient() -> None:
    frozen = NET.replace('bottom: "x"', 'param { lr_mult: 0 } param { lr_mult: 0 } bottom: "x"')
    operator = Operator(Net(graph_of(frozen), PassContext(SEED)), compute=TwoPartCompute)
    operator.begin_pass(0, 0)
    operator.forward(0)
    operator.backward(0)
    operator.backward_weights(0)
    assert not gradients(operator).keys() & {"c/0", "c/1"}
    assert LEFT - {"c/0", "c/1"} < gradients(operator).keys()
