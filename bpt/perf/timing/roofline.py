"""The roofline model: the least time of a layer's work on this machine, and its measured time.

Williams, Waterman, Patterson: Roofline: An Insightful Visual Performance Model for Multicore Architectures,
Communications of the ACM 52(4), 2009. docs/timing.md has the rules by which operations and bytes are counted.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from bpt.graph.layer_graph import LayerGraph, LayerNode
from bpt.graph.layer_spec import count
from bpt.nn.layers import LAYERS
from bpt.perf.timing.layer_times import LayerTimes
from bpt.perf.timing.peaks import Peaks


class Direction(enum.Enum):
    """The direction of a pass."""

    FORWARD = "forward"
    BACKWARD = "backward"


@dataclass(frozen=True)
class LayerWork:
    """The least work of a layer in one direction: floating-point operations, and bytes read and written."""

    flops: int
    bytes: int

    @property
    def intensity(self) -> float:
        """FLOP/byte; infinite if nothing moves, 0 if there is no work."""
        return self.flops / self.bytes if self.bytes else float("inf") if self.flops else 0.0

    def least_seconds(self, peaks: Peaks) -> float:
        """Return the least seconds under both roofs."""
        return max(self.flops / peaks.flops, self.bytes / peaks.bandwidth)

    def is_compute_bound(self, peaks: Peaks) -> bool:
        """Return whether the compute roof bounds the work, and not the memory roof."""
        return self.flops / peaks.flops > self.bytes / peaks.bandwidth


@dataclass(frozen=True)
class Point:
    """A layer in one direction, under the roofs.

    Attributes:
        node: the layer.
        direction: the direction.
        work: its operations and bytes.
        seconds: the median of its times.
        least: its seconds at the roof.
        is_compute_bound: whether the compute roof bounds it.
    """

    node: LayerNode
    direction: Direction
    work: LayerWork
    seconds: float
    least: float
    is_compute_bound: bool

    @property
    def above(self) -> float:
        """Seconds above the roof; negative if the layer's data were in a cache."""
        return self.seconds - self.least


@dataclass(frozen=True)
class Itemsizes:
    """Bytes of an element of each edge's blob, and of a parameter's element."""

    edges: Sequence[int]
    parameters: int

    @classmethod
    def all(cls, graph: LayerGraph, itemsize: int) -> Itemsizes:
        """Return the item sizes of a net whose blobs all have the same number type."""
        return cls((itemsize,) * len(graph.edges), itemsize)


def forward_work(graph: LayerGraph, node: LayerNode, sizes: Itemsizes) -> LayerWork:
    """Return the work of a layer forward.

    It reads bottoms and parameters and writes tops, each once. Views and sinks move nothing.
    """
    if not node.tops or node.layer_type.is_view:
        return LayerWork(node.flops, 0)
    blobs = _bytes(graph, (*node.bottoms, *node.tops), sizes)
    return LayerWork(node.flops, blobs + sizes.parameters * _parameters(graph, node))


def backward_work(graph: LayerGraph, node: LayerNode, sizes: Itemsizes) -> LayerWork:
    """Return the work of a layer backward.

    The diffs of bottoms and the diffs of parameters each take the operations of forward, if they are needed. A layer
    reads the diffs of its tops, its parameters for the diffs of bottoms, and its bottoms for the diffs of parameters.
    It writes the needed diffs.
    """
    if not node.needs_backward:
        return LayerWork(0, 0)
    wanted = [edge for edge, diff in zip(node.bottoms, node.bottom_needs_diff, strict=True) if diff]
    trained = _trained(graph, node)
    if node.layer_type.is_view:
        adds = len(node.tops) - 1  # a Split sums the diffs of its tops
        moved = _bytes(graph, (*node.tops, *wanted), sizes) if adds else 0
        return LayerWork(adds * _elements(graph, wanted), moved)
    kind = LAYERS[node.type]
    shapes = [[graph.edges[edge].shape for edge in edges] for edges in (node.bottoms, node.tops)]
    # The bottoms of a product are needed only for the diffs of its parameters.
    reread = kind.reread(node.spec, *shapes) if trained or not kind.multiplies else 0
    parameters = trained + (_parameters(graph, node) if wanted else 0)
    moved = _bytes(graph, (*node.tops, *wanted), sizes) + reread * sizes.edges[node.bottoms[0]]
    return LayerWork(node.flops * (bool(wanted) + bool(trained)), moved + sizes.parameters * parameters)


def points(graph: LayerGraph, layers: Sequence[LayerTimes], sizes: Itemsizes, peaks: Peaks) -> list[Point]:
    """Return all layers with bottoms, in each direction, those with most time above the roof first.

    Layers without bottoms wait, read or generate data, so these roofs do not bound them.
    """
    found = []
    for layer in layers:
        node = layer.node
        if not node.bottoms:
            continue
        ways = [(Direction.FORWARD, forward_work(graph, node, sizes), layer.forward.median)]
        if node.needs_backward:
            ways.append((Direction.BACKWARD, backward_work(graph, node, sizes), layer.backward.median))
        for direction, work, seconds in ways:
            found.append(Point(node, direction, work, seconds, work.least_seconds(peaks), work.is_compute_bound(peaks)))
    return sorted(found, key=lambda point: -point.above)


def _bytes(graph: LayerGraph, edges: Sequence[int], sizes: Itemsizes) -> int:
    return sum(sizes.edges[edge] * count(graph.edges[edge].shape) for edge in edges)


def _elements(graph: LayerGraph, edges: Sequence[int]) -> int:
    return sum(count(graph.edges[edge].shape) for edge in edges)


def _parameters(graph: LayerGraph, node: LayerNode) -> int:
    return sum(count(graph.params[index].shape) for index in node.params)


def _trained(graph: LayerGraph, node: LayerNode) -> int:
    """Return the number of elements of the parameters that get a diff."""
    params = (graph.params[index] for index in node.params)
    wanted = (p for p in params if p.learnable and (p.lr_mult != 0 or graph.force_backward))
    return sum(count(param.shape) for param in wanted)
