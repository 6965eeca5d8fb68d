"""Net: parameters, and those that several layers or nets share."""

from __future__ import annotations

import pytest
import torch

from bpt.base.errors import LayerError, UserError
from bpt.config.proto import bpt_pb2 as pb
from bpt.engine.operator import Operator
from bpt.nn.net import Net
from bpt.nn.pass_context import PassContext
from tests.nn.summed_nets import inner_product, inputs, summed
from tests.support.golden_cases import graph_of


def gradient_of_sum(net: Net, x: torch.Tensor) -> torch.Tensor:
    """The gradient of the sum of the net's output by its only set of weights."""
    operator = Operator(net)
    operator.feed({0: x})
    operator.forward(0)
    operator.backward(0)
    (weight,) = net.parameters()
    assert weight.grad is not None
    return weight.grad


def test_layers_that_share_add_their_gradients() -> None:
    net = Net(
        graph_of(
            inputs(4, 3)
            + inner_product("a", "x", 3, 'name: "w"')
            + inner_product("b", "a", 3, 'name: "w"')
            + summed("b")
        )
    )
    first, second = (net.value(param) for param in net.graph.params)
    assert first is second
    assert len(list(net.parameters())) == 1
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    # y = x Wᵀ Wᵀ. By the second W: 1ᵀ (x Wᵀ); by the first: Wᵀ 1 1ᵀ x, for the sum of y.
    w = first.detach()
    ones = torch.ones(4, 3)
    expected = ones.T @ (x @ w.T) + (ones @ w).T @ x
    torch.testing.assert_close(gradient_of_sum(net, x), expected)


def test_permissive_sharers_see_the_values_in_their_own_shape() -> None:
    text = (
        inputs(4, 3)
        + inner_product("a", "x", 2, 'name: "w"')
        + inner_product("b", "a", 3, 'name: "w" share_mode: PERMISSIVE')
        + summed("b")
    )
    net = Net(graph_of(text))
    assert [param.shape for param in net.graph.params] == [(2, 3), (3, 2)]
    (w,) = net.parameters()
    assert w.shape == (2, 3)  # the owner's
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    first, second = w.detach(), w.detach().reshape(3, 2)
    torch.testing.assert_close(net(x), (x @ first.T) @ second.T)
    # y = x W₁ᵀ W₂ᵀ; W₂ is W₁'s elements in rows of 2.
    ones = torch.ones(4, 3)
    expected = (ones.T @ (x @ first.T)).reshape(2, 3) + (ones @ second).T @ x
    torch.testing.assert_close(gradient_of_sum(net, x), expected)


def test_a_shared_parameter_starts_as_its_owner_says() -> None:
    first = inner_product("a", "x", 3, 'name: "w"').replace('type: "gaussian"', "value: 7")
    net = Net(graph_of(inputs(4, 3) + first + inner_product("b", "a", 3, 'name: "w"')))
    assert torch.equal(net.value(net.graph.params[1]).detach(), torch.full((3, 3), 7.0))


def test_lr_mult_0_and_statistics_do_not_train() -> None:
    text = inputs(4, 3) + inner_product("a", "x", 3, "lr_mult: 0") + inner_product("b", "a", 3, "lr_mult: 2")
    text += 'layer { name: "bn" type: "BatchNorm" bottom: "b" top: "bn" }'
    net = Net(graph_of(text))
    assert [net.value(param).requires_grad for param in net.graph.params] == [False, True, False, False, False]
    net = Net(graph_of("force_backward: true " + text))
    assert [net.value(param).requires_grad for param in net.graph.params] == [True, True, False, False, False]


def test_fillers_depend_on_seed_layer_and_blob_alone() -> None:
    one = inputs(4, 3) + inner_product("a", "x", 3, "") + inner_product("b", "a", 3, "")
    other = inputs(4, 3) + inner_product("b", "x", 3, "")
    a, b = Net(graph_of(one), PassContext(seed=1)).parameters()
    (same_b,) = Net(graph_of(other), PassContext(seed=1)).parameters()
    (other_b,) = Net(graph_of(other), PassContext(seed=2)).parameters()
    assert torch.equal(b, same_b)
    assert not torch.equal(a, b)
    assert not torch.equal(b, other_b)


def test_a_test_net_uses_the_train_nets_parameters() -> None:
    text = inputs(4, 3) + inner_product("a", "x", 3, "") + inner_product("b", "a", 2, "")
    train = Net(graph_of(text))
    test = Net(graph_of(text + summed("b"), pb.TEST), shared=train.values_by_name())
    assert [id(p) for p in test.parameters()] == [id(p) for p in train.parameters()]


def test_a_test_net_with_other_shapes() -> None:
    train = Net(graph_of(inputs(4, 3) + inner_product("a", "x", 3, "")))
    with pytest.raises(LayerError) as caught:
        Net(graph_of(inputs(4, 3) + inner_product("a", "x", 5, "")), shared=train.values_by_name())
    assert str(caught.value) == (
        'layer "a": parameter 0 has shape (5, 3), but the net that shares its parameters has (3, 3)'
    )


def test_a_filler_that_cannot_fill_its_parameter() -> None:
    text = inputs(4, 3) + inner_product("a", "x", 3, "").replace("gaussian", "bilinear")
    with pytest.raises(LayerError) as caught:
        Net(graph_of(text))
    assert str(caught.value) == (
        'layer "a": bilinear filler: needs a blob with 4 axes and a square kernel, not shape (3, 3)'
    )


def test_reshape_keeps_parameters_or_says_why_not() -> None:
    text = inputs(4, 3) + inner_product("a", "x", 2, "")
    net = Net(graph_of(text))
    net.reshape(graph_of(text, input_shapes={"x": (9, 3)}))
    assert net(torch.zeros(9, 3)).shape == (9, 2)
    with pytest.raises(LayerError) as caught:
        net.reshape(graph_of(text, input_shapes={"x": (9, 5)}))
    assert str(caught.value) == ('layer "a": the new input shape would change parameter 0 from (2, 3) to (2, 5)')


def test_it_is_a_module_from_inputs_to_outputs() -> None:
    text = """layer { name: "in" type: "Input" top: "p" top: "q" input_param { shape { dim: 2 dim: 3 } } }
        layer { name: "z" type: "Eltwise" bottom: "p" bottom: "q" top: "z" }
        layer { name: "c" type: "Concat" bottom: "z" bottom: "q" top: "c" }
        layer { name: "b" type: "ReLU" bottom: "z" top: "b" }"""
    net = Net(graph_of(text))
    p, q = torch.tensor([[1.0, -2, 3]]), torch.tensor([[-2.0, 1, 1]])
    b, c = net(p, q)  # sorted by name, as Caffe's outputs are
    assert torch.equal(b, torch.tensor([[0.0, 0, 4]]))
    assert torch.equal(c, torch.tensor([[-1.0, -1, 4, -2, 1, 1]]))
    with pytest.raises(UserError) as caught:
        net(p)
    assert str(caught.value) == "the net takes 2 inputs (p, q), given 1"
