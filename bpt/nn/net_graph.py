"""The graph of a net that a text describes: the place where texts, layer types and graphs meet."""

from __future__ import annotations

from collections.abc import Mapping

from bpt.base.errors import PrototxtError
from bpt.config.plan.nets import NetPlan
from bpt.graph.build import build_graph
from bpt.graph.layer_graph import Edge, LayerGraph
from bpt.graph.layer_spec import Shape
from bpt.graph.layer_specs import layer_specs
from bpt.graph.left_out import explain_none_in
from bpt.graph.state import show_state
from bpt.nn.layers import LAYERS


def build_graph_of(net: NetPlan, input_shapes: Mapping[str, Shape] | None = None) -> LayerGraph:
    """Build the graph of a net.

    Args:
        input_shapes: shapes by blob name, which replace those of Input layers.

    Raises:
        PrototxtError: the net is wrong, or no layer of it belongs to its state.
    """
    param = net.source.param
    layers = layer_specs(param, net.source.origins)
    graph = build_graph(
        param.name,
        layers,
        LAYERS,
        net.state,
        force_backward=param.force_backward,
        debug_info=param.debug_info,
        input_shapes=input_shapes,
        source=net.source.path,
    )
    if not param.layer:
        raise PrototxtError("the net is empty: its text has no layer", net.source.origin())
    if not len(graph):
        why = explain_none_in(layers, net.state)
        raise PrototxtError(f"the net has no layer for {show_state(net.state)}{why}", net.source.origin())
    return graph


def is_listed(graph: LayerGraph, edge: Edge) -> bool:
    """Return whether the number of rows of a blob depends on the data. Each row then names its sample."""
    node = graph.nodes[edge.producer]
    return node.tops.index(edge.index) in LAYERS[node.type].listed


def is_evaluated(graph: LayerGraph, edge: Edge) -> bool:
    """Return whether a blob says which detections are right."""
    return graph.nodes[edge.producer].type == "DetectionEvaluate"
