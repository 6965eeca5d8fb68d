"""SegmentOperator: wherever a net is cut into segments, its losses and gradients are those of the whole."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from bpt.engine.operator import Operator
from bpt.graph.segments import cut
from bpt.nn.net import Net
from tests.support.cut_nets import BRANCHES, CHAINS, make_net
from tests.support.one_layer import gradient_of


def run(net: Net, starts: tuple[int, ...]) -> dict[str, Tensor]:
    """The loss, the gradients of all parameters and the diffs of the inputs, for a net cut at ``starts``."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(6, 5, generator=generator)
    y = torch.tensor([0.0, 1, 2, 3, 0, 1])
    operator = Operator(net, cut(net.graph, starts))
    operator.feed(dict(enumerate((x, y))))
    for parameter in net.parameters():
        parameter.grad = None
    for index in range(len(operator.segments)):
        operator.forward(index)
    for index in reversed(range(len(operator.segments))):
        operator.backward(index)
    grads = {name: torch.zeros_like(p) if p.grad is None else p.grad for name, p in net.named_parameters()}
    diffs = {f"diff {edge}": operator.diffs[edge] for edge in (0, 1) if edge in operator.diffs}
    return {"loss": operator.loss(), **grads, **diffs}


def segmentations(layers: int) -> list[tuple[int, ...]]:
    return [(0, *cuts) for number in range(layers) for cuts in combinations(range(1, layers), number)]


@pytest.mark.parametrize("force_backward", [False, True])
@pytest.mark.parametrize("layers", CHAINS.values(), ids=CHAINS.keys())
def test_a_chain_gives_the_same_bits_however_it_is_cut(layers: list[str], force_backward: bool) -> None:
    net = make_net(layers, force_backward)
    expected = run(net, (0,))
    assert any(value.any() for name, value in expected.items() if name != "loss")
    for starts in segmentations(len(net.graph)):
        actual = run(net, starts)
        assert actual.keys() == expected.keys()
        for name, value in expected.items():
            assert torch.equal(actual[name], value), f"{name}, cut at {starts}"


@pytest.mark.parametrize("force_backward", [False, True])
@pytest.mark.parametrize("layers", BRANCHES.values(), ids=BRANCHES.keys())
def test_branches_give_the_same_to_rounding_however_they_are_cut(layers: list[str], force_backward: bool) -> None:
    net = make_net(layers, force_backward)
    expected = run(net, (0,))
    assert any(value.any() for name, value in expected.items() if name != "loss")
    for starts in segmentations(len(net.graph)):
        actual = run(net, starts)
        assert actual.keys() == expected.keys(), f"cut at {starts}"
        torch.testing.assert_close(actual, expected, msg=lambda text, starts=starts: f"cut at {starts}: {text}")  # type: ignore[misc]


def test_against_torch_by_hand() -> None:
    net = make_net(BRANCHES["two losses"])
    actual = run(net, (0, 2, 4))
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(6, 5, generator=generator)
    y = torch.tensor([0, 1, 2, 3, 0, 1])
    blobs = {name: p.detach().clone().requires_grad_() for name, p in net.named_parameters()}
    w_a, b_a, w_b, b_b = blobs.values()
    a = x @ w_a.T + b_a
    b = a @ w_b.T + b_b
    loss = 0.25 * functional.cross_entropy(a, y) + ((b - a) ** 2).sum() / (2 * 6)
    loss.backward()
    torch.testing.assert_close(actual.pop("loss").float(), loss.detach())
    torch.testing.assert_close(actual, {name: blob.grad for name, blob in blobs.items()})


def test_gradients_of_several_passes_add_up() -> None:
    net = make_net(CHAINS["chain"])
    operator = Operator(net)
    operator.feed({0: torch.ones(6, 5)})
    operator.forward(0)
    operator.backward(0)
    once = [p.grad.clone() for p in net.parameters() if p.grad is not None]
    operator.forward(0)
    operator.backward(0)
    assert [torch.equal(gradient_of(p), 2 * grad) for p, grad in zip(net.parameters(), once, strict=True)] == [True] * 4


def test_a_diff_that_the_caller_sets_replaces_the_loss_weight() -> None:
    net = make_net(CHAINS["chain"])
    first = run(net, (0,))
    operator = Operator(net)
    operator.feed({0: torch.randn(6, 5, generator=torch.Generator().manual_seed(0))})
    operator.feed({1: torch.tensor([0.0, 1, 2, 3, 0, 1])})
    operator.diffs[net.graph.blobs["l"].index] = torch.tensor(-2.0)
    net.zero_grad()
    operator.forward(0)
    operator.backward(0)
    for name, parameter in net.named_parameters():
        torch.testing.assert_close(parameter.grad, -2 * first[name])


def test_forward_alone_keeps_nothing_for_backward() -> None:
    net = make_net(CHAINS["chain"])
    operator = Operator(net, cut(net.graph, (0, 3)))
    operator.forward(0, grad=False)
    operator.forward(1, grad=False)
    assert set(operator.values) == {0, 1, net.graph.blobs["s"].index, net.graph.blobs["l"].index}
    assert not any(value.requires_grad for value in operator.values.values())
    with pytest.raises(KeyError):
        operator.backward(1)


def test_inputs_that_nobody_sets_are_zeros() -> None:
    net = make_net(CHAINS["chain"])
    operator = Operator(net)
    operator.forward(0)
    # zeros through "a" leave its bias, 0: both classes of "s" are 1/2 everywhere, whatever the weights
    s = torch.full((6, 4), 0.5)
    layer: Any = net.layers[3]
    w, b = (blob.detach() for blob in layer.blobs)
    expected = functional.cross_entropy(s @ w.T + b, torch.zeros(6, dtype=torch.long))
    torch.testing.assert_close(operator.loss().float(), expected)


def test_cutting_anew_keeps_what_was_fed() -> None:
    """Chunks change while a net trains, and its inputs stay."""
    net = make_net(CHAINS["chain"])
    expected = run(net, (0,))
    operator = Operator(net)
    generator = torch.Generator().manual_seed(0)
    operator.feed(dict(enumerate((torch.randn(6, 5, generator=generator), torch.tensor([0.0, 1, 2, 3, 0, 1])))))
    operator.forward(0)
    operator.cut_into(cut(net.graph, (0, 2, 4)))
    net.zero_grad()
    for index in range(3):
        operator.forward(index)
    for index in reversed(range(3)):
        operator.backward(index)
    assert torch.equal(operator.loss(), expected["loss"])
    for name, parameter in net.named_parameters():
        assert torch.equal(gradient_of(parameter), expected[name]), name
