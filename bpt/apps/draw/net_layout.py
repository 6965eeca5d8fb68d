"""The layout of a layer graph by Sugiyama's method: ranks by the longest path, and orders with few crossings.

A drawing that is longer than a page continues in further columns; ``fold`` chooses where they begin.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

SWEEPS = 12


@dataclass(frozen=True)
class LayoutLink:
    """A link: ``blob`` goes from box ``source`` to box ``target``."""

    source: int
    target: int
    blob: str


@dataclass(frozen=True)
class LinkSegment:
    """The part of a blob's links between a vertex and a vertex of the next rank."""

    upper: int
    lower: int
    blob: str


@dataclass
class LayoutLayers:
    """The vertices, rank by rank: boxes, and dummies where a link passes a rank.

    Attributes:
        boxes: the number of boxes; vertices with this number or a higher one are dummies.
        ranks: the vertices of each rank, from left to right.
        rank_of: vertex → rank.
        segments: the segments of all links.
        above: vertex → the vertices of the rank before that segments join it to.
        below: vertex → the vertices of the rank after that segments join it to.
    """

    boxes: int
    ranks: list[list[int]]
    rank_of: list[int]
    segments: list[LinkSegment]
    above: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    below: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))

    def is_dummy(self, vertex: int) -> bool:
        return vertex >= self.boxes


def layers_of(boxes: int, links: Sequence[LayoutLink]) -> LayoutLayers:
    """Return the ranks of ``boxes`` and their orders; each link goes from a lower to a higher number."""
    ranks = longest_paths(boxes, links)
    layers = _with_dummies(boxes, links, ranks)
    order(layers)
    return layers


def longest_paths(boxes: int, links: Iterable[LayoutLink]) -> list[int]:
    """Return the rank of each box: the number of boxes on the longest path to it.

    A source has the rank just before that of its first reader.
    """
    readers: dict[int, list[int]] = defaultdict(list)
    makers: dict[int, list[int]] = defaultdict(list)
    for link in links:
        assert link.source < link.target, link
        readers[link.source].append(link.target)
        makers[link.target].append(link.source)
    ranks = [0] * boxes
    for box in range(boxes):
        ranks[box] = max((ranks[maker] + 1 for maker in makers[box]), default=0)
    for box in range(boxes):
        if not makers[box] and readers[box]:
            ranks[box] = min(ranks[reader] for reader in readers[box]) - 1
    return ranks


def _with_dummies(boxes: int, links: Sequence[LayoutLink], box_ranks: Sequence[int]) -> LayoutLayers:
    rank_of = list(box_ranks)
    segments: list[LinkSegment] = []
    trunks: dict[tuple[int, str], list[int]] = {}  # the vertices that a blob passes, its maker first
    for link in sorted(set(links), key=lambda link: (link.source, link.blob, box_ranks[link.target], link.target)):
        trunk = trunks.setdefault((link.source, link.blob), [link.source])
        start, end = box_ranks[link.source], box_ranks[link.target]
        while len(trunk) < end - start:
            dummy = len(rank_of)
            rank_of.append(start + len(trunk))
            segments.append(LinkSegment(trunk[-1], dummy, link.blob))
            trunk.append(dummy)
        segments.append(LinkSegment(trunk[end - start - 1], link.target, link.blob))
    layers = LayoutLayers(boxes, [[] for _ in range(max(rank_of, default=-1) + 1)], rank_of, segments)
    for segment in segments:
        layers.above[segment.lower].append(segment.upper)
        layers.below[segment.upper].append(segment.lower)
    for vertex in _by_depth(layers):
        layers.ranks[rank_of[vertex]].append(vertex)
    return layers


def _by_depth(layers: LayoutLayers) -> list[int]:
    """Return all vertices in depth-first order.

    The dummies of long links come last, so that these links start at the right.
    """
    seen: set[int] = set()
    found: list[int] = []
    for start in range(layers.boxes):
        stack = [start] if not layers.above[start] else []
        while stack:
            vertex = stack.pop()
            if vertex in seen:
                continue
            seen.add(vertex)
            found.append(vertex)
            stack.extend(sorted(layers.below[vertex], reverse=True))
    return found


def order(layers: LayoutLayers) -> None:
    """Order each rank by barycentres, down and up in turn, then by swaps of neighbours; keep the best order."""
    best, fewest = [list(rank) for rank in layers.ranks], crossings(layers)
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        numbers = range(1, len(layers.ranks)) if down else range(len(layers.ranks) - 2, -1, -1)
        for number in numbers:
            _by_barycentre(layers, number, down)
        _swap(layers)
        found = crossings(layers)
        if found < fewest:
            best, fewest = [list(rank) for rank in layers.ranks], found
    layers.ranks[:] = best


def crossings(layers: LayoutLayers) -> int:
    """Return the number of pairs of segments that cross."""
    place = places(layers)
    total = 0
    for number in range(len(layers.ranks) - 1):
        pairs = [(place[upper], place[lower]) for upper in layers.ranks[number] for lower in layers.below[upper]]
        total += sum((a[0] - b[0]) * (a[1] - b[1]) < 0 for i, a in enumerate(pairs) for b in pairs[:i])
    return total


def places(layers: LayoutLayers) -> dict[int, int]:
    """Return the place of each vertex in its rank."""
    return {vertex: place for rank in layers.ranks for place, vertex in enumerate(rank)}


def _by_barycentre(layers: LayoutLayers, number: int, down: bool) -> None:
    beside = layers.ranks[number - 1 if down else number + 1]
    place = {vertex: at for at, vertex in enumerate(beside)}
    neighbours = layers.above if down else layers.below
    rank = layers.ranks[number]

    def centre(at: int) -> float:
        found = [place[vertex] for vertex in neighbours[rank[at]]]
        return sum(found) / len(found) if found else float(at)

    layers.ranks[number] = [rank[at] for at in sorted(range(len(rank)), key=centre)]


def _swap(layers: LayoutLayers) -> None:
    """Swap neighbours as long as that saves crossings."""
    place = places(layers)

    def saves(left: int, right: int) -> int:
        saved = 0
        for neighbours in (layers.above, layers.below):
            pairs = [(place[a], place[b]) for a in neighbours[left] for b in neighbours[right]]
            saved += sum(a > b for a, b in pairs) - sum(a < b for a, b in pairs)
        return saved

    for _ in range(len(layers.ranks)):
        changed = False
        for rank in layers.ranks:
            for at in range(len(rank) - 1):
                if saves(rank[at], rank[at + 1]) > 0:
                    rank[at], rank[at + 1] = rank[at + 1], rank[at]
                    place[rank[at]], place[rank[at + 1]] = at, at + 1
                    changed = True
        if not changed:
            return


SLACK = 0.15  # part of an even column's length by which a column may be longer or shorter


def columns_needed(length: float, width: float, page: float, aspect: float) -> int:
    """Return the number of columns with which the drawing is about ``aspect`` times as long as wide.

    Args:
        length: of the drawing in one column.
        width: of a column.
        page: the length up to which one column is enough.
        aspect: the wanted length, relative to the width.
    """
    if length <= page:
        return 1
    return min(max(2, round(math.sqrt(length / (width * aspect)))), math.ceil(length / page))


def fold(layers: LayoutLayers, lengths: Sequence[float], columns: int) -> list[int]:
    """Return the first rank of each column; the first is 0.

    A cut is near the end of an even part, at the rank that the fewest blobs cross.

    Args:
        layers: the vertices.
        lengths: the length of each rank, with the gap behind it.
        columns: the largest number of columns.
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


def crossing(layers: LayoutLayers, rank: int) -> int:
    """Return the number of blobs that go from the rank before to ``rank``."""
    return len({(segment.upper, segment.blob) for segment in layers.segments if layers.rank_of[segment.lower] == rank})
