"""Tops that list things, such as detections, instead of having a row for each sample."""

from __future__ import annotations

from bpt.graph.layer_graph import Edge, LayerGraph
from bpt.nn.layers.base import LAYERS


def is_listed(graph: LayerGraph, edge: Edge) -> bool:
    """Return whether a blob has as many rows as the data say, each of which names its sample."""
    node = graph.nodes[edge.producer]
    return node.tops.index(edge.index) in LAYERS[node.type].listed


def is_evaluated(graph: LayerGraph, edge: Edge) -> bool:
    """Return whether a blob tells which detections are right."""
    return graph.nodes[edge.producer].type == "DetectionEvaluate"
