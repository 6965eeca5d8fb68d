"""Other shapes for the blobs of a graph, from those of its inputs: what Caffe's layers do as they run forward."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from bpt.graph.build import infer
from bpt.graph.layer_graph import LayerGraph
from bpt.graph.layer_spec import Shape


def reshaped(graph: LayerGraph, inputs: Mapping[str, Shape], last: int) -> LayerGraph:
    """``graph`` with the shapes that its layers up to number ``last`` make of ``inputs``, those of Input layers' tops.

    Layers behind ``last`` keep their shapes, whether they fit or not (Caffe: ``Net::ForwardFromTo``).

    Raises:
        LayerError: a layer cannot work on such bottoms.
    """
    edges, nodes, params = list(graph.edges), list(graph.nodes), list(graph.params)
    for node in graph.nodes[: last + 1]:
        bottoms = [edges[edge].shape for edge in node.bottoms]
        shapes = infer(node.spec, node.layer_type, bottoms)
        for number, shape in zip(node.tops, shapes.tops, strict=True):
            edge = edges[number]
            given = inputs.get(edge.blob, shape) if node.type == "Input" else shape
            edges[number] = replace(edge, shape=given)
        for number, param in zip(node.params, shapes.params, strict=True):
            params[number] = replace(params[number], shape=param.shape)
        flops = node.layer_type.flops(node.spec, bottoms, [edges[edge].shape for edge in node.tops])
        nodes[node.index] = replace(node, flops=flops)
    return replace(graph, nodes=tuple(nodes), edges=tuple(edges), params=tuple(params))
