"""Part: the layers and parameter slices of a graph that a rank holds. No tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from bpt.graph.layer_graph import Param
from bpt.graph.layer_spec import Shape


@dataclass(frozen=True)
class BlobSlice:
    """``[start, stop)`` along one axis of a parameter blob."""

    axis: int
    start: int
    stop: int

    def shape(self, whole: Shape) -> Shape:
        """Return the shape of this slice of a blob of shape ``whole``."""
        return (*whole[: self.axis], self.stop - self.start, *whole[self.axis + 1 :])

    def index(self, axes: int) -> tuple[slice, ...]:
        """Return the index that takes this slice out of a blob with ``axes`` axes."""
        return tuple(slice(self.start, self.stop) if axis == self.axis else slice(None) for axis in range(axes))


@dataclass(frozen=True)
class Part:
    """The layers and parameters of a net that one rank holds.

    Attributes:
        layers: the indices of the layers that it runs; ``None``: all.
        slices: its slices of parameters by Param.index. It holds the other parameters of its layers whole.
    """

    layers: frozenset[int] | None = None
    slices: Mapping[int, BlobSlice] = field(default_factory=dict)

    def runs(self, layer: int) -> bool:
        """Return whether the rank runs the layer with this index."""
        return self.layers is None or layer in self.layers

    def holds(self, param: Param) -> bool:
        """Return whether the rank holds the parameter or a slice of it, because it runs the parameter's layer."""
        return self.runs(param.layer)

    def slice_of(self, param: Param) -> BlobSlice | None:
        """Return the slice that the rank holds; ``None``: the whole blob."""
        return self.slices.get(param.index)

    def shape_of(self, param: Param) -> Shape:
        """Return the shape of the rank's slice of the parameter."""
        part = self.slice_of(param)
        return part.shape(param.shape) if part else param.shape


WHOLE = Part()


def holders(param: Param, parts: Sequence[Part]) -> tuple[tuple[int, BlobSlice | None], ...]:
    """Return the ranks and slices that together make ``param`` exactly once.

    Args:
        param: the parameter.
        parts: the part of each rank.

    Returns:
        Pairs (rank, slice) in the order of the slices, without empty ones; or the first rank that holds the whole
        blob, with ``None``.
    """
    slices: list[tuple[int, BlobSlice]] = []
    for rank, part in enumerate(parts):
        if part.holds(param):
            own = part.slice_of(param)
            if own is None:
                return ((rank, None),)
            slices.append((rank, own))
    slices.sort(key=lambda held: (held[1].start, held[1].stop))
    assert slices, f"no rank holds parameter {param.index}"
    axis = slices[0][1].axis
    ends = [0, *(own.stop for _, own in slices)]
    fit = all(own.axis == axis and own.start == end for (_, own), end in zip(slices, ends, strict=False))
    assert fit and ends[-1] == param.shape[axis], f"slices of parameter {param.index} do not tile it"
    return tuple((rank, own) for rank, own in slices if own.stop > own.start)


def slice_bounds(extent: int, parts: int) -> list[tuple[int, int]]:
    """Return ``extent`` cut into ``parts`` runs ``[start, stop)``; runs that are longer (by 1) come first."""
    size, longer = divmod(extent, parts)
    starts = [part * size + min(part, longer) for part in range(parts + 1)]
    return list(pairwise(starts))
