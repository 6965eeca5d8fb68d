"""Positions of vertices across their ranks, such that long paths are straight and the other vertices are near them.

The graph is divided into paths, the longest first. The vertices of a path are in one line, a *block*. Blocks keep the
order of the ranks and the distances, and move towards the blocks that they are joined to. This follows U. Brandes and
B. Köpf, "Fast and simple horizontal coordinate assignment", 2001, but with paths instead of medians.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from statistics import median

from bpt.apps.draw.net_layout import LayoutLayers, places

ROUNDS = 60
_PAIR = 2


def place(layers: LayoutLayers, distance: Callable[[int, int], float]) -> list[float]:
    """Return the place of each vertex across its rank; the smallest is 0.

    Args:
        layers: the vertices.
        distance: returns the least distance between the middles of two neighbours in a rank.
    """
    block_of = blocks(layers)
    members: dict[int, list[int]] = defaultdict(list)
    for vertex, block in enumerate(block_of):
        members[block].append(vertex)
    left: dict[int, dict[int, float]] = defaultdict(dict)  # block → block at its left → least distance
    right: dict[int, dict[int, float]] = defaultdict(dict)
    for rank in layers.ranks:
        for a, b in pairwise(rank):
            one, other = block_of[a], block_of[b]
            gap = max(distance(a, b), left[other].get(one, 0.0))
            left[other][one] = right[one][other] = gap
    pulls = _pulls(layers, block_of)
    sequence = _from_left(members, left)
    at: dict[int, float] = {}
    for block in sequence:
        at[block] = max((at[beside] + gap for beside, gap in left[block].items()), default=0.0)
    for number in range(ROUNDS):
        before = dict(at)
        for block in sequence if number % 2 else reversed(sequence):
            if block in pulls:
                wanted = median([at[other] for other in pulls[block]])
                least = max((at[beside] + gap for beside, gap in left[block].items()), default=float("-inf"))
                most = min((at[beside] - gap for beside, gap in right[block].items()), default=float("inf"))
                at[block] = max(least, min(most, wanted))
        if at == before:
            break
    start = min(at.values(), default=0.0)
    return [at[block] - start for block in block_of]


def blocks(layers: LayoutLayers) -> list[int]:
    """Return the block of each vertex; a block has the number of one of its vertices."""
    block_of = list(range(len(layers.rank_of)))
    where = places(layers)
    straight: dict[int, list[tuple[int, int]]] = defaultdict(list)  # rank → places of the ends of straight segments
    for path in _paths(layers):
        for upper, lower in pairwise(path):
            ends, rank = (where[upper], where[lower]), layers.rank_of[upper]
            if all((ends[0] - other[0]) * (ends[1] - other[1]) > 0 for other in straight[rank]):
                straight[rank].append(ends)
                block_of[lower] = block_of[upper]
    return block_of


def _pulls(layers: LayoutLayers, block_of: list[int]) -> dict[int, list[int]]:
    """Return the blocks that each block is joined to, once for each segment.

    Segments between boxes count; a block that has none counts its segments with dummies.
    """
    of_boxes: dict[int, list[int]] = defaultdict(list)
    of_all: dict[int, list[int]] = defaultdict(list)
    for segment in layers.segments:
        one, other = block_of[segment.upper], block_of[segment.lower]
        if one != other:
            boxes = not (layers.is_dummy(segment.upper) or layers.is_dummy(segment.lower))
            for pulls in (of_boxes, of_all) if boxes else (of_all,):
                pulls[one].append(other)
                pulls[other].append(one)
    return {block: of_boxes.get(block) or pulls for block, pulls in of_all.items()}


def _paths(layers: LayoutLayers) -> Iterator[list[int]]:
    """Yield paths that contain each vertex once: the path with the most boxes, then the longest of the rest, and so on.

    The first path is cut where two paths with the most boxes part or meet, so that the other parts are placed between
    the two.
    """
    free = set(range(len(layers.rank_of)))
    sequence = [vertex for rank in layers.ranks for vertex in rank]
    if not sequence:
        return
    most = _on_longest(layers, sequence)
    for path in _pieces(layers, _longest(layers, sequence, free, lambda vertex: not layers.is_dummy(vertex)), most):
        yield path
        free -= set(path)
    while free:
        path = _longest(layers, sequence, free, lambda vertex: True)
        free -= set(path)
        yield path


def _longest(layers: LayoutLayers, sequence: list[int], free: set[int], counts: Callable[[int], bool]) -> list[int]:
    """Return the path of ``free`` vertices with the most vertices that ``counts``; of equal paths the middle one."""
    length: dict[int, int] = {}
    before: dict[int, int] = {}
    for vertex in sequence:
        if vertex not in free:
            continue
        joined = [upper for upper in layers.above[vertex] if upper in free]
        longest = max((length[upper] for upper in joined), default=0)
        if ties := [upper for upper in joined if length[upper] == longest]:
            before[vertex] = ties[(len(ties) - 1) // 2]
        length[vertex] = longest + counts(vertex)
    path = [max(length, key=length.__getitem__)]
    while path[-1] in before:
        path.append(before[path[-1]])
    return path[::-1]


def _on_longest(layers: LayoutLayers, sequence: list[int]) -> set[int]:
    """Return the vertices on paths with the most boxes."""
    to: dict[int, int] = {}
    onwards: dict[int, int] = {}
    for vertex in sequence:
        to[vertex] = max((to[upper] for upper in layers.above[vertex]), default=0) + (not layers.is_dummy(vertex))
    for vertex in reversed(sequence):
        behind = max((onwards[lower] for lower in layers.below[vertex]), default=0)
        onwards[vertex] = behind + (not layers.is_dummy(vertex))
    most = max(to.values(), default=0)
    return {vertex for vertex in sequence if to[vertex] + onwards[vertex] - (not layers.is_dummy(vertex)) == most}


def _pieces(layers: LayoutLayers, path: list[int], most: set[int]) -> Iterator[list[int]]:
    """Yield the pieces of ``path``, cut where exactly one other path through ``most`` parts from it or meets it."""
    piece = path[:1]
    for upper, lower in pairwise(path):
        parting = most.intersection(layers.below[upper])
        meeting = most.intersection(layers.above[lower])
        if _PAIR in (len(parting), len(meeting)):
            yield piece
            piece = []
        piece.append(lower)
    yield piece


def _from_left(members: Iterable[int], left: dict[int, dict[int, float]]) -> list[int]:
    """Return the blocks in an order in which each follows all blocks at its left."""
    done: dict[int, None] = {}

    def visit(first: int) -> None:
        stack = [first]
        while stack:
            missing = [beside for beside in left[stack[-1]] if beside not in done]
            if missing:
                stack.append(missing[0])
            else:
                done[stack.pop()] = None

    for block in members:
        if block not in done:
            visit(block)
    return list(done)
