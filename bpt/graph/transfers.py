"""Transfers: the blobs that are sent from one stage of a pipeline to another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bpt.graph.layer_graph import LayerGraph, LayerNode
from bpt.graph.layer_spec import Shape
from bpt.graph.segments import Segment


@dataclass(frozen=True)
class Transfer:
    """A blob that one stage makes and another one reads. It is sent once, directly to the reading stage.

    Attributes:
        index: its number among the transfers of a net.
        edges: the edges, which have the same values: one, or the tops of a Split that the same stage reads.
        source: the segment that makes it; ``None``: a layer without bottoms. These layers run on stage 0.
        target: the first segment of the reading stage that reads it; its backward pass completes the diff.
        from_stage: the stage that makes it.
        to_stage: the stage that reads it.
        shape: the shape of the blob for the whole batch.
        diff: whether a diff is sent back; never to a layer without bottoms, even if ``force_backward`` computes it.
    """

    index: int
    edges: tuple[int, ...]
    source: int | None
    target: int
    from_stage: int
    to_stage: int
    shape: Shape
    diff: bool


def is_source(node: LayerNode) -> bool:
    """Return whether the layer has no bottoms: it reads data, or the caller sets its tops."""
    return not node.bottoms


def wants_diff(graph: LayerGraph, edge: int) -> bool:
    """Return whether the layer that reads ``edge`` gives a diff back."""
    consumer = graph.edges[edge].consumer
    if consumer is None:
        return False
    node = graph.nodes[consumer]
    return node.needs_backward and node.bottom_needs_diff[node.bottoms.index(edge)]


def transfers(graph: LayerGraph, segments: Sequence[Segment], stages: Sequence[int]) -> tuple[Transfer, ...]:
    """Return the transfers between stages, in order of the layers that make them.

    Args:
        graph: the net.
        segments: its segments.
        stages: the stage of each segment.
    """
    segment_of = {layer: segment.index for segment in segments for layer in range(segment.start, segment.end)}
    crossing: dict[tuple[int, int], list[int]] = {}  # (edge of the values, reading stage) → edges
    for edge in graph.edges:
        if edge.consumer is None:
            continue
        producer = graph.nodes[edge.producer]
        maker = 0 if is_source(producer) else stages[segment_of[edge.producer]]
        reader = stages[segment_of[edge.consumer]]
        if maker != reader:
            root = producer.bottoms[0] if producer.type == "Split" else edge.index
            crossing.setdefault((root, reader), []).append(edge.index)
    found: list[Transfer] = []
    for (_, reader), edges in crossing.items():
        producer = graph.nodes[graph.edges[edges[0]].producer]
        source = None if is_source(producer) else segment_of[producer.index]
        readers = [graph.edges[edge].consumer for edge in edges]
        found.append(
            Transfer(
                len(found),
                tuple(edges),
                source,
                target=min(segment_of[layer] for layer in readers if layer is not None),
                from_stage=0 if source is None else stages[source],
                to_stage=reader,
                shape=graph.edges[edges[0]].shape,
                diff=source is not None and any(wants_diff(graph, edge) for edge in edges),
            )
        )
    return tuple(found)
