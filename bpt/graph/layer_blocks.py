"""Blocks: consecutive layers that one stage should run together (Hybrid paper, section 4.3.1)."""

from __future__ import annotations

from collections.abc import Mapping

from bpt.graph.layer_graph import LayerGraph, LayerNode

HEADS = ("Convolution", "Deconvolution", "DepthwiseConvolution")
FOLLOWERS = ("BatchNorm", "Scale", "Bias", "PReLU", "Eltwise")  # in addition to all elementwise layers


def conv_blocks(graph: LayerGraph) -> tuple[tuple[int, int], ...]:
    """Return the conv blocks: each convolution with the normalisation of its top, and the activation after that.

    The paper's "Conv block consists of a 3×3×3 3D convolution layer, 3D batch normalization and a rectified-linear-unit
    nonlinearity layer", and each is a partition of its own. In Caffe the normalisation is two layers, BatchNorm and
    Scale. If a residual branch ends in a convolution, its block includes the sum of the branches and the activation
    after that. A Split of a block's top ends the block.

    Returns:
        Runs of at least two layers ``[start, end)``, ascending, without overlaps.
    """
    found = []
    layer = 0
    while layer < len(graph):
        start, layer = layer, layer + 1
        if graph.nodes[start].type in HEADS:
            while layer < len(graph) and _is_in_same_block(graph, graph.nodes[layer - 1], graph.nodes[layer]):
                layer += 1
            if layer > start + 1:
                found.append((start, layer))
    return tuple(found)


def _is_in_same_block(graph: LayerGraph, last: LayerNode, node: LayerNode) -> bool:
    """Return whether ``node``, which follows ``last``, belongs to the same block."""
    if node.index - 1 not in (graph.edges[edge].producer for edge in node.bottoms) or last.type == "Split":
        return False
    return node.type in (*FOLLOWERS, "Split") or node.layer_type.elementwise


def named_blocks(graph: LayerGraph) -> Mapping[str, tuple[int, int]]:
    """Return the blocks that layers name by ``parallel_param { block: "res2a" }``.

    Returns:
        The run of layers ``[start, end)`` of each name, from its first layer to its last. Layers between these belong
        to the run, whatever block they name.
    """
    found: dict[str, tuple[int, int]] = {}
    for node in graph.nodes:
        if name := node.spec.param.parallel_param.block:
            found[name] = found.get(name, (node.index, 0))[0], node.index + 1
    return found
