"""Reshape the blobs of a graph to new shapes of its inputs, as Caffe's layers do when they run forward."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from bpt.graph.build import infer
from bpt.graph.layer_graph import LayerGraph
from bpt.graph.layer_spec import Shape


def reshape_graph(graph: LayerGraph, inputs: Mapping[str, Shape], last: int) -> LayerGraph:
    """Return ``graph`` with the shapes that its layers up to number ``last`` make of ``inputs``.

    ``inputs`` are the shapes of Input layers' tops. Layers after ``last`` keep their shapes even if these no longer fit
    (Caffe: ``Net::ForwardFromTo``).

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
