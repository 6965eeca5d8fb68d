"""Which layers are one block: by rule, and as they say."""

from __future__ import annotations

from itertools import pairwise

import pytest

from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_blocks import conv_blocks, named_blocks
from bpt.graph.layer_graph import LayerGraph
from tests.support.golden_cases import graph_of
from tests.support.shipped_nets import train_val


def layer(name: str, kind: str, *bottoms: str, top: str = "", block: str = "") -> str:
    more = {"Convolution": "convolution_param { num_output: 1 kernel_size: 1 }"}.get(kind, "")
    named = f' parallel_param {{ block: "{block}" }}' if block else ""
    read = "".join(f' bottom: "{bottom}"' for bottom in bottoms)
    return f'layer {{ name: "{name}" type: "{kind}"{read} top: "{top or name}" {more}{named} }}\n'


DATA = 'layer { name: "x" type: "Input" top: "x" input_param { shape { dim: [2, 1, 3, 3] } } }\n'


def names(graph: LayerGraph) -> list[list[str]]:
    return [[node.name for node in graph.nodes[start:end]] for start, end in conv_blocks(graph)]


def test_a_convolution_with_what_follows() -> None:
    graph = graph_of(
        DATA
        + layer("conv", "Convolution", "x")
        + layer("bn", "BatchNorm", "conv", top="conv")
        + layer("scale", "Scale", "conv", top="conv")
        + layer("relu", "ReLU", "conv", top="conv")
        + layer("pool", "Pooling", "conv").replace("}", "pooling_param { kernel_size: 2 } }", 1)
        + layer("alone", "Convolution", "pool")
        + layer("again", "Convolution", "alone")
        + layer("tanh", "TanH", "again")
    )
    assert names(graph) == [["conv", "bn", "scale", "relu"], ["again", "tanh"]]


def test_branches_and_their_join() -> None:
    """The join is of the block right before it, which it reads; a block does not go on behind a Split."""
    graph = graph_of(
        DATA
        + layer("a", "Convolution", "x")
        + layer("a_relu", "ReLU", "a", top="a")
        + layer("short", "Convolution", "a")
        + layer("b", "Convolution", "a")
        + layer("sum", "Eltwise", "short", "b")
        + layer("sum_relu", "ReLU", "sum", top="sum")
        + layer("c", "Convolution", "sum")
        + layer("c_tanh", "TanH", "c")
        + layer("last", "Eltwise", "c", "sum")
    )
    assert names(graph) == [
        ["a", "a_relu", "a_a_relu_0_split"],
        ["b", "sum", "sum_relu", "sum_sum_relu_0_split"],
        ["c", "c_c_0_split"],
    ]


def test_the_blocks_of_3d_resattnet() -> None:
    """17 convolutions of 3×3×3 and three shortcuts; those of the attention layers have nothing to be a block with."""
    graph = train_val("resattnet18_3d", pb.TRAIN)
    blocks = names(graph)
    assert len(blocks) == 1 + 2 * 8 + 3
    assert blocks[0] == ["conv1", "bn_conv1", "scale_conv1", "conv1_relu"]
    assert blocks[2][:5] == ["res1_1b", "bn_res1_1b", "scale_res1_1b", "res1_1", "res1_1_relu"]
    assert ["res2_1_shortcut", "bn_res2_1_shortcut", "scale_res2_1_shortcut"] in blocks


@pytest.mark.parametrize("net", ["lenet", "googlenet", "resnet50"])
def test_blocks_do_not_overlap(net: str) -> None:
    graph = train_val(net, pb.TRAIN)
    blocks = conv_blocks(graph)
    assert all(a < b <= c for (a, b), (c, _) in pairwise(blocks))
    assert all(graph.nodes[start].type == "Convolution" for start, _ in blocks)
    assert not any(graph.nodes[layer].type == "Convolution" for a, b in blocks for layer in range(a + 1, b))


def test_named_blocks() -> None:
    graph = graph_of(
        DATA
        + layer("a", "Convolution", "x", block="first")
        + layer("between", "ReLU", "a")
        + layer("b", "TanH", "between", block="first")
        + layer("c", "TanH", "b", block="second")
    )
    assert named_blocks(graph) == {"first": (1, 4), "second": (4, 5)}
    assert not named_blocks(graph_of(DATA))
