"""Costs from a graph, worked by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bpt.errors import UserError
from bpt.graph.layer_graph import LayerGraph
from bpt.placement.costs import Cost, costs_of
from bpt.proto import bpt_pb2 as pb
from bpt.proto.text import parse_text
from tests.net_cases import graph_in

#  in: 2x3 and labels 2; a: 3 → 4 (weights 12 + 4); relu; b: 4 → 5 (weights 20, frozen, no bias); loss
TEXT = """
layer { name: "in" type: "Input" top: "x" top: "y" input_param { shape { dim: 2 dim: 3 } shape { dim: 2 } } }
layer { name: "a" type: "InnerProduct" bottom: "x" top: "a" inner_product_param { num_output: 4 } }
layer { name: "r" type: "ReLU" bottom: "a" top: "a" }
layer { name: "b" type: "InnerProduct" bottom: "a" top: "b" param { lr_mult: 0 }
        inner_product_param { num_output: 5 bias_term: false } }
layer { name: "l" type: "SoftmaxWithLoss" bottom: "b" bottom: "y" top: "l" }
"""


def graph_of(text: str) -> LayerGraph:
    return graph_in(parse_text(text, pb.NetParameter, "net.prototxt").message, pb.TRAIN)


def test_from_the_graph() -> None:
    graph = graph_of(TEXT)
    flops = [float(node.flops) for node in graph.nodes]
    assert flops[1] >= 2 * 2 * 3 * 4  # multiply and add, 2 samples
    assert costs_of(graph) == (
        Cost("in", 0.0, 0.0, 0, 4 * (6 + 2)),
        Cost("a", flops[1], 2 * flops[1], 3 * 4 * 16, 4 * 8, 4 * 16, 4 * 12),  # values, gradients, history
        Cost("r", flops[2], 2 * flops[2], 0, 4 * 8),
        Cost("b", flops[3], 2 * flops[3], 4 * 20, 4 * 10),  # frozen: values only
        Cost("l", flops[4], 2 * flops[4], 0, 4),
    )
    assert costs_of(graph, histories=2)[1].parameters == 4 * 4 * 16
    assert costs_of(graph, histories=0)[1].parameters == 2 * 4 * 16


def test_replicas_divide_what_depends_on_samples() -> None:
    whole, half = (costs_of(graph_of(TEXT), replicas=replicas)[1] for replicas in (1, 2))
    assert half == replace(
        whole, forward=whole.forward / 2, backward=whole.backward / 2, activations=whole.activations / 2
    )


def test_what_runs_no_backward_costs_none() -> None:
    frozen = "param { lr_mult: 0 } param { lr_mult: 0 }"
    graph = graph_of(TEXT.replace('bottom: "x" top: "a"', f'bottom: "x" top: "a" {frozen}'))
    assert [cost.backward for cost in costs_of(graph)[:4]] == [0.0] * 4


def test_measured() -> None:
    graph = graph_of(TEXT)
    measured = {"a": (1.0, 3.0), "r": (0.5, 0.25), "b": (2.0, 4.0), "l": (0.125, 0.0), "in": (9.0, 9.0)}
    assert [(cost.forward, cost.backward) for cost in costs_of(graph, measured)] == [
        (0.0, 0.0), (1.0, 3.0), (0.5, 0.25), (2.0, 4.0), (0.125, 0.0)
    ]  # fmt: skip
    del measured["b"]
    with pytest.raises(UserError, match='no layer "b"; measure'):
        costs_of(graph, measured)


def test_shared_parameters_count_at_their_owner() -> None:
    shared = 'param { name: "w" } param { name: "v" } inner_product_param { num_output: 4 }'
    text = TEXT.replace("inner_product_param { num_output: 4 }", shared)
    text += f'layer {{ name: "c" type: "InnerProduct" bottom: "x" top: "c" {shared} }}'
    costs = {cost.name: cost for cost in costs_of(graph_of(text))}
    assert (costs["a"].parameters, costs["c"].parameters) == (3 * 4 * 16, 0)
    assert costs["x_in_0_split"] == Cost("x_in_0_split", 0.0, 0.0, 0, 0)
