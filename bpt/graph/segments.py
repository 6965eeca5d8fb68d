"""Segments: consecutive layers that run as one unit, each with its own autograd graph."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from bpt.graph.layer_graph import LayerGraph
from bpt.graph.layer_spec import count


@dataclass(frozen=True)
class Segment:
    """Layers ``[start, end)`` of a graph, with the edges that cross its borders.

    ``inputs`` are written before ``start`` and read inside. ``outputs`` are written inside, and are read after ``end``
    or are outputs or losses of the net. Both are in order of edge number.
    """

    index: int
    start: int
    end: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    def describe(self, graph: LayerGraph) -> str:
        """Return the names of the first and the last layer."""
        first, last = graph.nodes[self.start].name, graph.nodes[self.end - 1].name
        return first if first == last else f"{first} … {last}"


def cut(graph: LayerGraph, starts: Sequence[int] = (0,), sources_apart: bool = False) -> tuple[Segment, ...]:
    """Cut ``graph`` into segments that begin at ``starts`` (ascending, the first 0).

    Args:
        graph: the net.
        starts: the first layers of the segments.
        sources_apart: whether layers without bottoms run outside of all segments.
    """
    assert starts[0] == 0 and list(starts) == sorted(set(starts)) and starts[-1] < max(len(graph), 1)
    ends = [*starts[1:], len(graph)]
    spans = enumerate(zip(starts, ends, strict=True))
    return tuple(_segment(graph, index, *span, sources_apart) for index, span in spans)


def whole(graph: LayerGraph) -> tuple[Segment, ...]:
    """Return the whole net as one segment, which is the default on one process."""
    return cut(graph)


def per_layer(graph: LayerGraph) -> tuple[Segment, ...]:
    """Return one segment a layer, so that every blob and diff is visible and every layer can be timed."""
    return cut(graph, range(len(graph))) if len(graph) else ()


def isolation_cuts(graph: LayerGraph, layers: Iterable[int]) -> set[int]:
    """Return the cuts that make each of these layers a segment of its own."""
    return {start for layer in layers for start in (layer, layer + 1) if start < len(graph)}


def starts_by_size(graph: LayerGraph, parameters: int) -> list[int]:
    """Return cuts such that each segment has at least ``parameters`` trained parameters.

    They are counted from the end of the net; the first segment gets the rest. A segment's gradients can be exchanged
    while the segments before it run backward.
    """
    starts = []
    waiting = 0
    for node in reversed(graph.nodes):
        own = (graph.params[index] for index in node.params)
        waiting += sum(count(param.shape) for param in own if param.learnable and param.lr_mult and not param.shared)
        if waiting >= parameters and node.index:
            starts.append(node.index)
            waiting = 0
    return [0, *reversed(starts)]


def trained_layers(graph: LayerGraph) -> list[int]:
    """Return the layers with trained parameters, from the top of the net down; CGDP counts these.

    Shared parameters count at the first of their layers, because its backward pass completes their gradients.
    """
    first: dict[int, int] = {}
    for param in graph.params:
        owner = graph.params[param.owner]
        if owner.learnable and owner.lr_mult:
            first[param.owner] = min(first.get(param.owner, param.layer), param.layer)
    return sorted(set(first.values()), reverse=True)


def starts_by_chunks(graph: LayerGraph, lengths: Sequence[int]) -> list[int]:
    """Return cuts such that each segment is a chunk of a given number of trained layers (CGDP, §4.1).

    Args:
        graph: the net.
        lengths: the lengths of the chunks from the top down; their sum is the number of ``trained_layers``.
    """
    layers = trained_layers(graph)
    assert sum(lengths) == len(layers), f"chunks of {sum(lengths)} layers for a net of {len(layers)}"
    last = [layers[end - 1] for end in accumulate(lengths)]
    return [0, *reversed([start for start in last[:-1] if start])]


def _segment(graph: LayerGraph, index: int, start: int, end: int, sources_apart: bool) -> Segment:
    inside = {layer for layer in range(start, end) if graph.nodes[layer].bottoms or not sources_apart}
    inputs = {edge for node in graph.nodes[start:end] for edge in node.bottoms}
    tops = sorted(edge for layer in inside for edge in graph.nodes[layer].tops)
    outputs = [e for e in tops if graph.edges[e].consumer not in inside or graph.edges[e].loss_weight]
    return Segment(
        index, start, end, tuple(sorted(e for e in inputs if graph.edges[e].producer not in inside)), tuple(outputs)
    )
