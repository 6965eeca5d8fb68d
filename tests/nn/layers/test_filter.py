"""Filter: what it lets through, and what layers behind it do with batches that the graph does not know of."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from bpt.base.errors import LayerError
from bpt.engine.operator import Operator
from bpt.graph.segments import per_layer
from bpt.nn.layers.filter import behind_filters
from bpt.nn.net import Net
from tests.support.golden_cases import graph_of
from tests.support.gradient_checker import spaced
from tests.support.one_layer import gradient_of, one_layer, shapes_of, tops_of

FILTER = 'type: "Filter"'


def test_by_hand() -> None:
    a = torch.tensor([[1.0, 2], [3, 4], [5, 6]], requires_grad=True)
    b = torch.tensor([10.0, 20, 30])
    layer = one_layer(FILTER, (3, 2), (3,), (3, 1, 1, 1), tops=2)
    first, second = tops_of(layer, a, b, torch.tensor([0.5, 0, -1]).reshape(3, 1, 1, 1))
    first.backward(torch.tensor([[1.0, 2], [3, 4]]))
    assert (first.tolist(), second.tolist()) == ([[1, 2], [5, 6]], [10, 30])
    assert gradient_of(a).tolist() == [[1, 2], [0, 0], [3, 4]]


def test_shapes_and_memory_formats() -> None:
    assert shapes_of(FILTER, (4, 3), (4,)) == ((4, 3),)  # all samples, as in Caffe until the first pass
    x = spaced((4, 2, 3, 2))
    layer = one_layer(FILTER, (4, 2, 3, 2), (4,))
    selector = torch.tensor([0.0, 1, 1, 0])
    assert torch.equal(layer(x.contiguous(memory_format=torch.channels_last), selector), x[1:3])
    assert layer(x, torch.zeros(4)).shape == (0, 2, 3, 2)
    assert layer(x[:0], torch.zeros(0)).shape == (0, 2, 3, 2)


def test_its_batch_is_not_divided() -> None:
    layer = one_layer(FILTER, (3, 2), (3,))
    reason = "the data decide how many samples pass"
    assert layer.mixes_samples(layer.spec, [(3, 2), (3,)]) == reason
    assert layer.counts_by_data(layer.spec) == reason


NET = """
layer { name: "in" type: "Input" top: "x" top: "s" top: "t"
        input_param { shape { dim: 4 dim: 3 } shape { dim: 4 } shape { dim: 4 } } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip"
        inner_product_param { num_output: 2 weight_filler { type: "xavier" } } }
layer { name: "filter" type: "Filter" bottom: "ip" bottom: "t" bottom: "s" top: "some" top: "labels" }
layer { name: "relu" type: "ReLU" bottom: "some" top: "some" }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "some" bottom: "labels" top: "loss"
        propagate_down: true propagate_down: false }
"""
SELECTOR = torch.tensor([0.0, 1, 0, 1])


def operator_of(text: str, **inputs: Tensor) -> Operator:
    graph = graph_of(text)
    operator = Operator(Net(graph), per_layer(graph))
    operator.feed({graph.blobs[name].index: value for name, value in inputs.items()})
    return operator


def test_the_layers_behind_get_the_samples_let_through() -> None:
    x, labels = spaced((4, 3)).float(), torch.tensor([0.0, 1, 1, 0])
    operator = operator_of(NET, x=x, s=SELECTOR, t=labels)
    graph = operator.net.graph
    for selector in (SELECTOR, torch.ones(4)):  # another number in each pass
        operator.feed({graph.blobs["s"].index: selector})
        for index in range(len(graph)):
            operator.forward(index)
        for index in reversed(range(len(graph))):
            operator.backward(index)
        weight, bias = operator.net.layer(graph.nodes[1]).blobs
        scores = torch.relu(x @ weight.t() + bias)[selector > 0]
        expected = torch.nn.functional.cross_entropy(scores, labels[selector > 0].long())
        torch.testing.assert_close(operator.loss().float(), expected.detach())
        torch.testing.assert_close([weight.grad, bias.grad], list(torch.autograd.grad(expected, [weight, bias])))
        weight.grad = bias.grad = None


def test_no_sample_let_through() -> None:
    operator = operator_of(NET, x=torch.ones(4, 3), s=torch.zeros(4), t=torch.zeros(4))
    for index in range(len(operator.net.graph)):
        operator.forward(index)
    assert operator.loss().item() == 0


def test_which_layers_stand_behind() -> None:
    graph = graph_of(NET)
    assert [graph.nodes[index].name for index in sorted(behind_filters(graph))] == ["relu", "loss"]


@pytest.mark.parametrize("chosen", [[0.0, 1, 0, 0], [1.0, 1, 0, 0]])
def test_layers_that_cannot_take_them_say_so(chosen: list[float]) -> None:
    # One sample would otherwise be broadcast to four, without a word.
    text = f"""{NET.split('layer { name: "relu"', maxsplit=1)[0]}
        layer {{ name: "sum" type: "Eltwise" bottom: "some" bottom: "ip" top: "sum" }}"""
    operator = operator_of(text, x=torch.ones(4, 3), s=torch.tensor(chosen), t=torch.zeros(4))
    last = len(operator.net.graph) - 1
    for index in range(last):
        operator.forward(index)
    with pytest.raises(LayerError, match=f'layer "sum": .*{int(sum(chosen))}, 2.*4, 2'):
        operator.forward(last)


def test_parameters_for_each_sample_cannot_stand_behind() -> None:
    text = f"""{NET.split('layer { name: "relu"', maxsplit=1)[0]}
        layer {{ name: "bias" type: "Bias" bottom: "some" top: "b" bias_param {{ axis: 0 }} }}"""
    operator = operator_of(text, x=torch.ones(4, 3), s=SELECTOR, t=torch.zeros(4))
    last = len(operator.net.graph) - 1
    for index in range(last):
        operator.forward(index)
    message = (
        r'layer "bias": follows a Filter or a Proposal, and parameter 0 would get the shape \(2,\) '
        r'for "some" \(2, 2\); '
    )
    with pytest.raises(LayerError, match=message):
        operator.forward(last)


LEARNED = """
layer { name: "in" type: "Input" top: "x" top: "t" input_param { shape { dim: 4 dim: 3 } shape { dim: 4 } } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "s" inner_product_param { num_output: 1 } }
layer { name: "filter" type: "Filter" bottom: "x" bottom: "t" bottom: "s" top: "some" top: "labels" }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "some" bottom: "labels" top: "loss"
        propagate_down: true propagate_down: false }
"""


def test_a_learned_selector_is_refused() -> None:
    """Caffe aborts: "Layer cannot backpropagate to filter index inputs". It passed here, and learned nothing."""
    with pytest.raises(LayerError) as caught:
        graph_of(LEARNED)
    assert str(caught.value).endswith(
        'layer "filter": Filter cannot give bottom "s" a diff, but earlier layers or propagate_down need it; set '
        "propagate_down: false for it"
    )
    unasked = 'type: "Filter" propagate_down: [true, false, false]'
    graph = graph_of(LEARNED.replace(FILTER, unasked))
    assert graph.nodes[graph.index_of["filter"]].bottom_needs_diff == (True, False, False)


def test_force_backward_leaves_the_selector_out() -> None:
    graph = graph_of(f"force_backward: true {NET}")
    assert graph.nodes[graph.index_of["filter"]].bottom_needs_diff == (True, True, False)
