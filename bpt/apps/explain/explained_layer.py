"""Find the layer that ``bpt explain`` explains: the named one, or the last one with spatial axes before the scores."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from bpt.apps.classify.classifier_net import ClassifierNet
from bpt.base.errors import UserError
from bpt.graph.layer_graph import Edge, LayerGraph
from bpt.graph.layer_spec import count


def find_layer(net: ClassifierNet, name: str = "") -> Edge:
    """Return the edge that ``name`` means: the top of the layer of that name, or else the last version of the blob.

    Without a name, it is the last top that the scores depend on and that has as many spatial axes as the input, not all
    of length 1. In a classifier that ends in a global pooling, this is the top of the layer before it.

    Raises:
        UserError: no layer or blob has the name (the error lists similar names), or it cannot be explained.
    """
    graph = net.graph
    before = _ancestors(graph, net.scores)
    if not name:
        places = [edge for edge in graph.edges if edge.index in before and not _why_not(net, edge)]
        maps = [edge for edge in places if count(edge.shape[2:]) > 1 and edge.index != net.input.index]
        if not maps:
            raise UserError(f"no layer before the scores has {net.axes} spatial axes like the input; see --layer")
        return maps[-1]
    edge = _named(net, name)
    if reason := _why_not(net, edge):
        raise UserError(f'--layer "{name}": {reason}')
    if edge.index not in before:
        raise UserError(f'--layer "{name}": the class scores do not depend on it')
    return edge


def layer_of(graph: LayerGraph, edge: Edge) -> str:
    """Return the name of the layer that makes ``edge``."""
    return graph.nodes[edge.producer].name


def _named(net: ClassifierNet, name: str) -> Edge:
    graph = net.graph
    nodes = [node for node in graph.nodes if node.type != "Split"]
    blobs = {edge.blob: edge for node in nodes for edge in (graph.edges[top] for top in node.tops)}
    for node in nodes:
        if node.name == name:
            tops = [graph.edges[top] for top in node.tops]
            if len(tops) != 1:
                names = ", ".join(edge.blob for edge in tops) or "none"
                raise UserError(f'--layer "{name}": the layer has {len(tops)} tops ({names}); name one of them')
            return tops[0]
    if name in blobs:
        return blobs[name]
    fit = [top for node in nodes for top in (graph.edges[index] for index in node.tops) if not _why_not(net, top)]
    known = list(dict.fromkeys([layer_of(graph, edge) for edge in fit] + [edge.blob for edge in fit]))
    raise UserError(f'--layer "{name}": no layer or blob has this name{_near(name, known)}')


def _near(name: str, known: Sequence[str]) -> str:
    """Return the end of a message: the known names similar to ``name``, or all of them if none is similar."""
    lowered = {word.lower(): word for word in known}
    near = difflib.get_close_matches(name.lower(), lowered, n=3, cutoff=0.5)
    if near:
        return "; did you mean " + " or ".join(f'"{lowered[word]}"' for word in near) + "?"
    return f" (with spatial axes: {', '.join(known)})"


def _why_not(net: ClassifierNet, edge: Edge) -> str:
    """Return why ``edge`` cannot be explained; "" if it can."""
    axes = max(len(edge.shape) - 2, 0)
    if axes != net.axes or not count(edge.shape):
        return f"its shape {edge.shape} has {axes} spatial axes, that of the input {net.input.shape} has {net.axes}"
    return ""


def _ancestors(graph: LayerGraph, edge: Edge) -> set[int]:
    """Return the edges that ``edge`` is computed from, without itself and without the copies of Splits."""
    seen: set[int] = set()
    waiting = [edge.producer]
    while waiting:
        node = graph.nodes[waiting.pop()]
        for bottom in node.bottoms:
            if bottom not in seen:
                seen.add(bottom)
                waiting.append(graph.edges[bottom].producer)
    return {index for index in seen if graph.nodes[graph.edges[index].producer].type != "Split"}
