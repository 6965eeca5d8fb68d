"""Blocks: runs of layers that belong together, so that one stage should run them (Hybrid paper, section 4.3.1)."""

from __future__ import annotations

from collections.abc import Mapping

from bpt.graph.layer_graph import LayerGraph, LayerNode

HEADS = ("Convolution", "Deconvolution", "DepthwiseConvolution")
FOLLOWERS = ("BatchNorm", "Scale", "Bias", "PReLU", "Eltwise")  # besides all that works element by element


def conv_blocks(graph: LayerGraph) -> tuple[tuple[int, int], ...]:
    """Conv blocks: each convolution with what normalises its top, and with the activation behind that.

    The paper's "Conv block consists of a 3×3×3 3D convolution layer, 3D batch normalization and a rectified-linear-unit
    nonlinearity layer", and each is a partition of its own. In Caffe the normalisation is two layers, BatchNorm and
    Scale. Where a residual branch ends in a convolution, the sum that joins it and the activation behind are of its
    block, too. A Split of what a block makes ends it.

    Returns:
        Runs of layers ``[start, end)``, two at least in each, ascending; none overlaps another one.
    """
    found = []
    layer = 0
    while layer < len(graph):
        start, layer = layer, layer + 1
        if graph.nodes[start].type in HEADS:
            while layer < len(graph) and _goes_on(graph, graph.nodes[layer - 1], graph.nodes[layer]):
                layer += 1
            if layer > start + 1:
                found.append((start, layer))
    return tuple(found)


def _goes_on(graph: LayerGraph, last: LayerNode, node: LayerNode) -> bool:
    """Return whether ``node`` is of the block that ``last`` is of, right before it."""
    if node.index - 1 not in (graph.edges[edge].producer for edge in node.bottoms) or last.type == "Split":
        return False
    return node.type in (*FOLLOWERS, "Split") or node.layer_type.elementwise


def named_blocks(graph: LayerGraph) -> Mapping[str, tuple[int, int]]:
    """Return the blocks that layers name, ``parallel_param { block: "res2a" }``: each from its first layer to its last.

    Returns:
        Name → run of layers ``[start, end)``, in which those between that name none, or another one, are, too.
    """
    found: dict[str, tuple[int, int]] = {}
    for node in graph.nodes:
        if name := node.spec.param.parallel_param.block:
            found[name] = found.get(name, (node.index, 0))[0], node.index + 1
    return found
