from __future__ import annotations

import pytest
import torch

from bpt.base.errors import LayerError
from bpt.engine.operator import Operator
from bpt.graph.segments import per_layer
from bpt.nn.layers import Layer
from bpt.nn.net import Net
from tests.nn.layers.refusals import check_refusal
from tests.support.golden_cases import graph_of

PARAMETER = 'type: "Parameter" parameter_param { shape { dim: 2 dim: 3 } }'
NET = f"""
layer {{ name: "in" type: "Input" top: "x" input_param {{ shape {{ dim: 2 dim: 3 }} }} }}
layer {{ name: "p" {PARAMETER} top: "p" }}
layer {{ name: "loss" type: "EuclideanLoss" bottom: "p" bottom: "x" top: "loss" }}
"""


def alone(body: str) -> Layer:
    """The layer "L", which reads nothing."""
    graph = graph_of(f'layer {{ name: "L" top: "y" {body} }}')
    return Net(graph).layer(graph.nodes[0])


def test_starts_at_0_and_is_its_blob() -> None:
    layer = alone(PARAMETER)
    assert torch.equal(layer(), torch.zeros(2, 3))
    with torch.no_grad():
        layer.blobs[0].copy_(torch.arange(6.0).reshape(2, 3))
    top = layer()
    assert torch.equal(top, torch.arange(6.0).reshape(2, 3))
    with torch.no_grad():
        top.zero_()  # a layer behind that works in place does not change what is learned
    assert torch.equal(layer(), torch.arange(6.0).reshape(2, 3))


def test_learns() -> None:
    graph = graph_of(NET)
    operator = Operator(Net(graph), per_layer(graph))
    x = torch.arange(6.0).reshape(2, 3)
    operator.feed({graph.blobs["x"].index: x})
    for index in range(3):
        operator.forward(index)
    for index in reversed(range(3)):
        operator.backward(index)
    grad = operator.net.layer(graph.nodes[1]).blobs[0].grad
    assert grad is not None
    assert torch.equal(grad, -x / 2)  # (p - x) / N


def test_shapes() -> None:
    assert alone(PARAMETER)().shape == (2, 3)
    assert alone('type: "Parameter"')().shape == ()
    assert alone('type: "Parameter" parameter_param { shape { dim: 0 dim: 4 } }')().shape == (0, 4)


def test_refusals() -> None:
    check_refusal(f'top: "y" {PARAMETER} §bottom: "x"', "Parameter takes 0 bottoms, given 1 (x)", x=(2,))
    with pytest.raises(LayerError, match=r'layer "L": the text would give a blob of shape \(-2,\)'):
        alone('type: "Parameter" parameter_param { shape { dim: -2 } }')


def test_its_batch_is_not_divided() -> None:
    layer = alone(PARAMETER)
    assert layer.mixes_samples(layer.spec, []) == "its top is learned and has no samples to divide"
    assert layer.counts_by_data(layer.spec) == "its top is learned and has no samples to divide"
