"""The roofline model: the least time that a layer's work can take on this machine, against what it took.

Williams, Waterman, Patterson: Roofline: An Insightful Visual Performance Model for Multicore Architectures,
Communications of the ACM 52(4), 2009. The rules by which operations and bytes are counted stand in docs/timing.md.
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
    FORWARD = "forward"
    BACKWARD = "backward"


@dataclass(frozen=True)
class LayerWork:
    """What a layer has to do at least, one way: floating-point operations, and bytes between memory and processor."""

    flops: int
    bytes: int

    @property
    def intensity(self) -> float:
        """FLOP/byte; infinite where nothing moves, 0 where there is nothing to do at all."""
        return self.flops / self.bytes if self.bytes else float("inf") if self.flops else 0.0

    def least_seconds(self, peaks: Peaks) -> float:
        """Under both roofs."""
        return max(self.flops / peaks.flops, self.bytes / peaks.bandwidth)

    def computes(self, peaks: Peaks) -> bool:
        """Return whether the roof of computing binds it, and not that of memory."""
        return self.flops / peaks.flops > self.bytes / peaks.bandwidth


@dataclass(frozen=True)
class Point:
    """A layer, one way, under the roofs.

    Attributes:
        seconds: that it took, the median.
        least: seconds that it would take at the roof.
    """

    node: LayerNode
    direction: Direction
    work: LayerWork
    seconds: float
    least: float
    computes: bool  # which roof binds

    @property
    def above(self) -> float:
        """Seconds above the roof's; less than 0 for a layer that finds its data in a cache."""
        return self.seconds - self.least


@dataclass(frozen=True)
class Itemsizes:
    """Bytes of an element: of the blob of each edge, and of parameters."""

    edges: Sequence[int]
    parameters: int

    @classmethod
    def all(cls, graph: LayerGraph, itemsize: int) -> Itemsizes:
        """Of a net that is all in the same numbers."""
        return cls((itemsize,) * len(graph.edges), itemsize)


def forward_work(graph: LayerGraph, node: LayerNode, sizes: Itemsizes) -> LayerWork:
    """Bottoms and parameters are read, tops are written, each once; a view's and a sink's are not."""
    if not node.tops or node.layer_type.is_view:
        return LayerWork(node.flops, 0)
    blobs = _bytes(graph, (*node.bottoms, *node.tops), sizes)
    return LayerWork(node.flops, blobs + sizes.parameters * _parameters(graph, node))


def backward_work(graph: LayerGraph, node: LayerNode, sizes: Itemsizes) -> LayerWork:
    """Of diffs of bottoms and of parameters each kind that is wanted takes the operations of forward.

    Tops' diffs are read, and so is what these gradients need: parameters for the bottoms', bottoms for the parameters'.
    Diffs that are wanted are written.
    """
    if not node.needs_backward:
        return LayerWork(0, 0)
    wanted = [edge for edge, diff in zip(node.bottoms, node.bottom_needs_diff, strict=True) if diff]
    trained = _trained(graph, node)
    if node.layer_type.is_view:
        adds = len(node.tops) - 1  # a Split hands its bottom the sum
        moved = _bytes(graph, (*node.tops, *wanted), sizes) if adds else 0
        return LayerWork(adds * _elements(graph, wanted), moved)
    kind = LAYERS[node.type]
    shapes = [[graph.edges[edge].shape for edge in edges] for edges in (node.bottoms, node.tops)]
    # A product's bottoms are factors of its parameters' diffs only.
    reread = kind.reread(node.spec, *shapes) if trained or not kind.multiplies else 0
    parameters = trained + (_parameters(graph, node) if wanted else 0)
    moved = _bytes(graph, (*node.tops, *wanted), sizes) + reread * sizes.edges[node.bottoms[0]]
    return LayerWork(node.flops * (bool(wanted) + bool(trained)), moved + sizes.parameters * parameters)


def points(graph: LayerGraph, layers: Sequence[LayerTimes], sizes: Itemsizes, peaks: Peaks) -> list[Point]:
    """Return all layers that have bottoms, forward, and backward where they go back; those farthest above the roof
    first.

    How long a layer without bottoms waits, or what it reads and draws, is no matter of these roofs.
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
            found.append(Point(node, direction, work, seconds, work.least_seconds(peaks), work.computes(peaks)))
    return sorted(found, key=lambda point: -point.above)


def _bytes(graph: LayerGraph, edges: Sequence[int], sizes: Itemsizes) -> int:
    return sum(sizes.edges[edge] * count(graph.edges[edge].shape) for edge in edges)


def _elements(graph: LayerGraph, edges: Sequence[int]) -> int:
    return sum(count(graph.edges[edge].shape) for edge in edges)


def _parameters(graph: LayerGraph, node: LayerNode) -> int:
    return sum(count(graph.params[index].shape) for index in node.params)


def _trained(graph: LayerGraph, node: LayerNode) -> int:
    """Elements of parameters that get a diff, as in ``Net``."""
    params = (graph.params[index] for index in node.params)
    wanted = (p for p in params if p.learnable and (p.lr_mult != 0 or graph.force_backward))
    return sum(count(param.shape) for param in wanted)
