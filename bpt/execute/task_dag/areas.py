"""The areas of a convolution's bottom that areas of its top are computed from (BPT-CNN, Eq. 12 to 14, Algorithm 4.1).

The paper has one task for each of the ``K_C`` elements of a feature map (Eq. 13); here a task has a run of its rows, as
many as are worth one. Eq. 12's depth ``D_x - D_f`` is not what a convolution layer gives; its height and width are, and
Eq. 14 is extended by padding and dilation, which it leaves out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Rows:
    """How the rows of a top follow from those of a bottom; a row is one place of the first spatial axis.

    Attributes:
        size: rows of the bottom (``H_x``).
        extent: rows that a filter reaches over (``H_f``, with the gaps of dilation).
        stride: ``S``.
        pad: ``P``, rows of zeros before the first and after the last.
    """

    size: int
    extent: int
    stride: int
    pad: int

    @property
    def places(self) -> int:
        """Rows of the top, ``H_a`` (Eq. 12)."""
        return (self.size + 2 * self.pad - self.extent) // self.stride + 1


@dataclass(frozen=True)
class Area:
    """Rows ``[first, last)`` of a top, and what they are computed from.

    Attributes:
        begin, end: rows of the bottom, without those of the pad; equal if there are none.
        before, after: rows of zeros that stand for the pad.
    """

    first: int
    last: int
    begin: int
    end: int
    before: int
    after: int


def area(rows: Rows, first: int, last: int) -> Area:
    """The area that rows ``[first, last)`` of the top are computed from (Eq. 14: ``r_begin = i S``, ``r_end = r_begin +
    H_f``, here counted from the first row of the bottom, not of its pad)."""
    assert 0 <= first < last <= rows.places, (rows, first, last)
    begin = first * rows.stride - rows.pad
    end = (last - 1) * rows.stride - rows.pad + rows.extent
    inside_begin = min(max(begin, 0), rows.size)
    inside_end = max(min(end, rows.size), inside_begin)
    before = min(max(-begin, 0), end - begin)
    return Area(first, last, inside_begin, inside_end, before, end - begin - before - (inside_end - inside_begin))


def decompose(rows: Rows, parts: int) -> Iterator[Area]:
    """The convolution in ``parts`` tasks of nearly as many rows each (Algorithm 4.1)."""
    places = rows.places
    assert 1 <= parts <= places, (rows, parts)
    for part in range(parts):
        yield area(rows, places * part // parts, places * (part + 1) // parts)
