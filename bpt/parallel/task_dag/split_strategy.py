"""The split strategy of each layer: by samples, by areas of a convolution's top, by neurons, or not at all."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from bpt.graph.layer_graph import LayerNode
from bpt.graph.layer_spec import Shape, count
from bpt.nn.layers.base import Layer
from bpt.nn.layers.batch_norm import BatchNorm
from bpt.nn.layers.convolution import Convolution
from bpt.nn.layers.inner_product import InnerProduct
from bpt.parallel.task_dag.areas import Axis, Grid, grid_of

HEAVY = 2.0  # a convolution with more weights than its blobs have elements, over this, is split by filters
CHANNELS = 32  # and has at least so many channels, or the slices would be too thin for the kernels
CUT = 2  # axes of a convolution's top that areas are cut along: rows and columns
EVEN = 0.75  # parts that keep the threads busy for less than this share of the time are too unequal


class SplitKind(enum.Enum):
    """The dimension that a layer is split along, as tasks are named; none for WHOLE."""

    WHOLE = ""
    SAMPLES = "samples"
    AREAS = "areas"
    NEURONS = "neurons"
    FILTERS = "filters"
    MOMENTS = "moments"  # by samples, which agree on the moments of all


@dataclass(frozen=True)
class SplitStrategy:
    """The way in which a layer is split.

    Attributes:
        parts: the number of tasks in a pass; 1 for WHOLE.
        samples: the number of samples under SAMPLES and MOMENTS; otherwise 0.
        pinned: whether only the calling thread may run the layer.
        grid: the numbers of parts along rows and columns under AREAS; otherwise empty.
    """

    kind: SplitKind = SplitKind.WHOLE
    parts: int = 1
    samples: int = 0
    pinned: bool = False
    grid: Grid = ()

    @property
    def bounds(self) -> tuple[int, ...]:
        """The bounds of the parts on axis 0, one more than parts; empty where samples stay together."""
        if not self.samples:
            return ()
        return tuple(self.samples * part // self.parts for part in range(self.parts + 1))


def choose(
    node: LayerNode,
    layer: Layer,
    shapes: Mapping[int, Shape],
    before: Sequence[SplitStrategy],
    seconds: float,
    threads: int,
    grain: float,
) -> SplitStrategy:
    """Return how ``layer`` is split.

    Args:
        shapes: the shapes of this rank's blobs, by edge.
        before: the strategies of the layers in this segment that make its bottoms.
        seconds: the estimated time of its forward on one core.
        grain: the least seconds that a task should take.
    """
    pinned = not node.bottoms or needs_collectives(layer)
    if pinned or threads == 1:
        return SplitStrategy(pinned=pinned)
    kind, samples, bottom = SplitKind.SAMPLES, samples_of(node, layer, shapes), shapes[node.bottoms[0]]
    if isinstance(layer, BatchNorm) and not samples and not layer.scale_blobs and len(bottom) > 1 and count(bottom):
        kind, samples = SplitKind.MOMENTS, bottom[0]
    worth = min(threads, int(seconds / grain))  # tasks
    if isinstance(layer, InnerProduct) and samples:
        weights, blobs = count(layer.blob(0).shape), count(bottom) + count(shapes[node.tops[0]])
        # By samples, each task would make a gradient of all weights, to be added up.
        if weights > blobs and layer.axis == 1 and not layer.transpose:
            return SplitStrategy(SplitKind.NEURONS, worth) if worth > 1 else SplitStrategy()
    if isinstance(layer, Convolution) and samples and worth > 1 and _has_many_weights(layer, node, shapes):
        return SplitStrategy(SplitKind.FILTERS, worth)
    if samples >= 2 and samples / (threads * -(-samples // threads)) >= EVEN:
        strategy = SplitStrategy(kind, min(threads, samples), samples)
        worthwhile = seconds / threads >= grain or any(strategy.bounds == other.bounds for other in before)
        return strategy if worthwhile else SplitStrategy()
    if isinstance(layer, Convolution) and samples and worth > 1 and layer.axis == 1 and len(node.bottoms) == 1:
        grid = grid_of(axes_of(layer, bottom), worth)
        if prod(grid) > 1:
            return SplitStrategy(SplitKind.AREAS, prod(grid), grid=grid)
    return SplitStrategy()


def _has_many_weights(layer: Convolution, node: LayerNode, shapes: Mapping[int, Shape]) -> bool:
    """Return whether reading all weights in every part of the samples costs more than splitting the filters."""
    if layer.group != 1 or layer.axis != 1 or len(node.bottoms) != 1:
        return False
    bottom, top = shapes[node.bottoms[0]], shapes[node.tops[0]]
    heavy = HEAVY * layer.blobs[0].numel() > count(bottom) + count(top)
    return heavy and max(layer.window.kernel) > 1 and bottom[1] >= CHANNELS


def samples_of(node: LayerNode, layer: Layer, shapes: Mapping[int, Shape]) -> int:
    """Return how many samples the layer computes independently of each other; 0 if it must see them together."""
    blobs = [shapes[edge] for edge in (*node.bottoms, *node.tops)]
    if not all(blobs) or len({shape[0] for shape in blobs}) > 1:
        return 0
    mixes = layer.mixes_samples(node.spec, [shapes[edge] for edge in node.bottoms])
    return blobs[0][0] if layer.sample_independent and not mixes else 0


def needs_collectives(layer: Layer) -> bool:
    """Return whether the layer may call collectives, which all ranks must call in the same order."""
    return layer.context.ranks > 1 and not (layer.sample_independent or layer.no_collectives)


def axes_of(layer: Convolution, bottom: Shape) -> list[Axis]:
    """Return the first spatial axes, at most two, of a convolution with its channels on axis 1."""
    window, sizes = layer.window, bottom[2:]
    axes = []
    for axis, size in enumerate(sizes[:CUT]):
        kernel, stride, pad, dilation = (
            values[axis if len(values) > 1 else 0]
            for values in (window.kernel, window.stride, window.pad, window.dilation)
        )
        axes.append(Axis(size, dilation * (kernel - 1) + 1, stride, pad))
    return axes
