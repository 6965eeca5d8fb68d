"""Which layers and blobs are in half precision; expected by hand, from the rules of bpt.graph.layer_spec.Autocast."""

from __future__ import annotations

from bpt.graph.autocast import half_precision
from tests.support.golden_cases import graph_of

NET = """
layer { name: "data" type: "Input" top: "data" top: "label"
  input_param { shape { dim: 2 dim: 3 dim: 8 dim: 8 } shape { dim: 2 } } }
layer { name: "scaled" type: "Power" bottom: "data" top: "scaled" power_param { scale: 0.5 } }
layer { name: "conv" type: "Convolution" bottom: "scaled" top: "conv"
  convolution_param { num_output: 4 kernel_size: 3 pad: 1 } }
layer { name: "bn" type: "BatchNorm" bottom: "conv" top: "bn" }
layer { name: "relu" type: "ReLU" bottom: "bn" top: "bn" }
layer { name: "both" type: "Eltwise" bottom: "bn" bottom: "conv" top: "both" }
layer { name: "mixed" type: "Concat" bottom: "both" bottom: "data" top: "mixed" }
layer { name: "pool" type: "Pooling" bottom: "both" top: "pool" top: "mask"
  pooling_param { kernel_size: 2 stride: 2 } }
layer { name: "log" type: "Exp" bottom: "mixed" top: "log" }
layer { name: "fc" type: "InnerProduct" bottom: "log" top: "fc" inner_product_param { num_output: 5 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "fc" bottom: "label" top: "loss" }
"""


def test_what_multiplies_is_in_half_precision_and_what_lies_between() -> None:
    graph = graph_of(NET)
    half = half_precision(graph)
    layers = {node.name: half.layers[node.index] for node in graph.nodes if node.type != "Split"}
    assert layers == {
        "data": False, "scaled": False, "conv": True, "bn": True, "relu": True, "both": True,
        "mixed": False,  # data are in single precision, and the widest counts
        "pool": False,  # half precision has too few whole numbers for the mask's places
        "log": False, "fc": True, "loss": False,
    }  # fmt: skip
    assert all(half.edges[edge] == half.layers[node.index] for node in graph.nodes for edge in node.tops)


def test_a_layer_that_is_told_not_to_takes_those_with_it_that_follow_it() -> None:
    graph = graph_of(NET)
    half = half_precision(graph, {"conv"})
    assert {node.name for node in graph.nodes if half.layers[node.index]} == {"fc"}


def test_losses_are_in_single_precision_whatever_makes_them() -> None:
    graph = graph_of(NET.replace('top: "both" }', 'top: "both" loss_weight: 0.1 }'))
    half = half_precision(graph)
    losses = [edge for edge in graph.edges if edge.loss_weight]
    assert [graph.nodes[edge.producer].name for edge in losses] == ["both_both_0_split", "loss"]
    assert not any(half.edges[edge.index] for edge in losses)
    layers = {node.name for node in graph.nodes if half.layers[node.index]}
    assert layers == {"conv", "conv_conv_0_split", "bn", "relu", "both", "fc"}
