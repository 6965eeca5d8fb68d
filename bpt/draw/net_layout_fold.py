"""A drawing that is longer than a page goes on in further columns; where they begin."""

from __future__ import annotations

import math
from collections.abc import Sequence

from bpt.draw.net_layout import Layers

SLACK = 0.15  # of a column's length, by which it may differ from an even part


def columns_needed(length: float, width: float, page: float, aspect: float) -> int:
    """So many columns of ``width`` that the whole is about ``aspect`` times as long as wide; 1 if it fits on a page."""
    if length <= page:
        return 1
    return min(max(2, round(math.sqrt(length / (width * aspect)))), math.ceil(length / page))


def fold(layers: Layers, lengths: Sequence[float], columns: int) -> list[int]:
    """The first rank of each column; the first is 0.

    Args:
        lengths: of each rank, with the gap behind it.
        columns: at most. Each cut is near an even part, where the fewest blobs cross it.
    """
    ends = [sum(lengths[: number + 1]) for number in range(len(lengths))]
    part = ends[-1] / columns if ends else 0.0
    first = [0]
    for column in range(1, columns):
        near = [
            rank for rank in range(first[-1] + 1, len(lengths)) if abs(ends[rank - 1] - column * part) < SLACK * part
        ]
        if near:
            first.append(min(near, key=lambda rank: (crossing(layers, rank), abs(ends[rank - 1] - column * part))))
    return first


def crossing(layers: Layers, rank: int) -> int:
    """Blobs that go from the rank before to ``rank``."""
    return len({(segment.upper, segment.blob) for segment in layers.segments if layers.rank_of[segment.lower] == rank})
