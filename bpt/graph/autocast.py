"""Autocast: the layers that compute in half precision (bf16, fp16), and the blobs that are in it.

``bpt/nn/mixed_precision.py`` applies the choice to a net, and ``Net.bottoms`` casts.
"""

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
    """The layers and edges of a graph that are in half precision. A layer casts its bottoms; its tops have its type.

    Attributes:
        layers, edges: whether each is in half precision, by index.
    """

    layers: tuple[bool, ...]
    edges: tuple[bool, ...]


def half_precision(graph: LayerGraph, full: Collection[str] = ()) -> HalfPrecision:
    """Return which layers and edges of ``graph`` are in half precision in such a run; losses never are.

    Args:
        graph: the net.
        full: names of layers that are in full precision, whatever their type says.
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
    """Return the bytes of an element of each edge's blob; layers that are still to be measured count as full."""
    halves = precision.half is not None and not precision.measures
    full = {node.name for node in choosable(graph)} if precision.named else ()
    edges = (half_precision(graph, full) if halves else without_half_precision(graph)).edges
    return tuple(precision.blob_type(half).itemsize for half in edges)


def without_half_precision(graph: LayerGraph) -> HalfPrecision:
    """Return the marks of a net that runs in single or double precision."""
    return HalfPrecision((False,) * len(graph.nodes), (False,) * len(graph.edges))


def choosable(graph: LayerGraph) -> Iterator[LayerNode]:
    """Return the layers of matrix products whose text does not set their precision."""
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
