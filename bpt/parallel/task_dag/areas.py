"""The areas of a convolution's bottom that areas of its top are computed from (BPT-CNN, Eq. 12 to 14, Algorithm 4.1).

The paper has one task for each of the ``K_C`` elements of a feature map (Eq. 13); here a task has some of its rows and
columns, as many as are worth one. Eq. 12's depth ``D_x - D_f`` is not what a convolution layer gives; its height and
width are, and Eq. 14 is extended by padding and dilation, which it leaves out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import prod


@dataclass(frozen=True)
class Axis:
    """The geometry of a convolution along one axis: rows along the first axis, columns along the second.

    Attributes:
        size: places of the bottom (``H_x`` or ``W_x``).
        extent: places that a filter reaches over (``H_f`` or ``W_f``, with the gaps of dilation).
        stride: ``S``.
        pad: ``P``, zeros before the first place and after the last.
    """

    size: int
    extent: int
    stride: int
    pad: int

    @property
    def places(self) -> int:
        """The number of places of the top, ``H_a`` or ``W_a`` (Eq. 12)."""
        return (self.size + 2 * self.pad - self.extent) // self.stride + 1


@dataclass(frozen=True)
class AreaSpan:
    """The places ``[first, last)`` of a top along an axis, and the places of the bottom that they need.

    Attributes:
        begin, end: places of the bottom, without those of the pad; equal if there are none.
        before, after: zeros that stand for the pad.
    """

    first: int
    last: int
    begin: int
    end: int
    before: int
    after: int


Area = tuple[AreaSpan, ...]  # rows, or rows and columns
Grid = tuple[int, ...]  # into how many spans each axis is cut


def span(axis: Axis, first: int, last: int) -> AreaSpan:
    """Return the bottom's places that places ``[first, last)`` of the top need (Eq. 14).

    Eq. 14 has ``r_begin = i S``, ``r_end = r_begin + H_f``; here they count from the first place of the bottom, not of
    its pad.
    """
    assert 0 <= first < last <= axis.places, (axis, first, last)
    begin = first * axis.stride - axis.pad
    end = (last - 1) * axis.stride - axis.pad + axis.extent
    inside_begin = min(max(begin, 0), axis.size)
    inside_end = max(min(end, axis.size), inside_begin)
    before = min(max(-begin, 0), end - begin)
    return AreaSpan(first, last, inside_begin, inside_end, before, end - begin - before - (inside_end - inside_begin))


def even_ranges(count: int, parts: int) -> list[tuple[int, int]]:
    """Return ``[first, last)`` of ``parts`` ranges of nearly equal length; fewer ranges if ``count`` is less."""
    parts = min(parts, count)
    return [(count * part // parts, count * (part + 1) // parts) for part in range(parts)]


def decompose(axes: Sequence[Axis], grid: Grid) -> list[Area]:
    """Return the convolution as tasks, one for each cell of ``grid``, of nearly equal size (Algorithm 4.1)."""
    assert all(1 <= parts <= axis.places for axis, parts in zip(axes, grid, strict=True)), (axes, grid)
    cuts = (
        [span(axis, *ends) for ends in even_ranges(axis.places, parts)] for axis, parts in zip(axes, grid, strict=True)
    )
    return list(product(*cuts))


def grid_of(axes: Sequence[Axis], parts: int) -> Grid:
    """Return how to cut the axes into at most ``parts`` tasks, so that the longest one is short (Eq. 15).

    That is the one that computes the most places and, of grids alike in this, reads the most: areas overlap by what the
    filters reach over. Of grids alike in both that with the fewest columns, whose memory lies in shorter runs.
    """

    def longest(grid: Grid) -> tuple[int, int, Grid]:
        most = [-(-axis.places // cells) for axis, cells in zip(axes, grid, strict=True)]
        read = [(places - 1) * axis.stride + axis.extent for axis, places in zip(axes, most, strict=True)]
        return prod(most), prod(read), tuple(reversed(grid))

    cuts = [range(1, min(parts, axis.places) + 1) for axis in axes]
    return min((grid for grid in product(*cuts) if prod(grid) <= parts), key=longest)
