"""Autocast: which layers of a net in half precision compute in it, and which blobs are of it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_graph import LayerGraph, LayerNode
from bpt.graph.layer_spec import Autocast

if TYPE_CHECKING:
    from bpt.config.precision import Precision


@dataclass(frozen=True)
class HalfPrecision:
    """What of a graph is in half precision. A layer casts its bottoms to its own numbers, and makes tops of them.

    Attributes:
        layers, edges: by index.
    """

    layers: tuple[bool, ...]
    edges: tuple[bool, ...]


def half_precision(graph: LayerGraph, full: Collection[str] = ()) -> HalfPrecision:
    """Return what of ``graph`` is in half precision, if it is run in it. Losses are not, whatever layer makes them.

    Args:
        full: names of layers that are not, whatever their type says.
    """
    edges = [False] * len(graph.edges)
    layers = []
    for node in graph.nodes:
        full_here = node.name in full or any(graph.edges[top].loss_weight for top in node.tops)
        half = not full_here and _is_half(node, [edges[edge] for edge in node.bottoms])
        layers.append(half)
        for edge in node.tops:
            edges[edge] = half
    return HalfPrecision(tuple(layers), tuple(edges))


def blob_itemsizes(graph: LayerGraph, precision: Precision) -> tuple[int, ...]:
    """Bytes of an element of each edge's blob. What is to be measured counts as if it were in the run's own numbers."""
    halves = precision.half is not None and not precision.measures
    full = {node.name for node in choosable(graph)} if precision.named else ()
    edges = (half_precision(graph, full) if halves else without_half_precision(graph)).edges
    return tuple(precision.blob_type(half).itemsize for half in edges)


def without_half_precision(graph: LayerGraph) -> HalfPrecision:
    """Of a net that is run in single or double precision."""
    return HalfPrecision((False,) * len(graph.nodes), (False,) * len(graph.edges))


def choosable(graph: LayerGraph) -> Iterator[LayerNode]:
    """Return the layers that multiply and whose own text does not say in which numbers."""
    return (
        node
        for node in graph.nodes
        if node.layer_type.autocast(node.spec) is Autocast.HALF and not node.spec.param.HasField("forward_type")
    )


def _is_half(node: LayerNode, bottoms: list[bool]) -> bool:
    autocast = node.layer_type.autocast(node.spec)
    if node.spec.param.HasField("forward_type") and autocast is not Autocast.FULL:
        return node.spec.param.forward_type == pb.FLOAT16
    return autocast is Autocast.HALF or (autocast is Autocast.WIDEST and bool(bottoms) and all(bottoms))
