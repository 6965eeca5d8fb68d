"""The batch size that the text of a net says."""

from __future__ import annotations

from bpt.graph.layer_graph import LayerGraph
from bpt.layers.base import LAYERS, DataLayer


def batch_of(graph: LayerGraph) -> int:
    """The batch size that the text of a net says: that of its first data layer, or of what stands for one; 0: none."""
    sources = [node for node in graph.nodes if not node.bottoms and node.tops]
    sources.sort(key=lambda node: not issubclass(LAYERS[node.type], DataLayer))
    shapes = [graph.edges[node.tops[0]].shape for node in sources]
    return next((shape[0] for shape in shapes if shape and shape[0]), 0)
