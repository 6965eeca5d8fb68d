"""Tops that are lists, such as detections, instead of having a row for each sample."""

from __future__ import annotations

from bpt.graph.layer_graph import Edge, LayerGraph
from bpt.nn.layers.base import LAYERS


def is_listed(graph: LayerGraph, edge: Edge) -> bool:
    """Return whether the number of rows of a blob depends on the data. Each row then names its sample."""
    node = graph.nodes[edge.producer]
    return node.tops.index(edge.index) in LAYERS[node.type].listed


def is_evaluated(graph: LayerGraph, edge: Edge) -> bool:
    """Return whether a blob says which detections are right."""
    return graph.nodes[edge.producer].type == "DetectionEvaluate"
