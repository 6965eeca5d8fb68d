"""Rectangles and curves of a drawing, from the ranks and orders of its layout.

Coordinates are in points, along and across the direction of the arrows. ``net_drawing`` turns them into x and y.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from bpt.apps.draw.net_layout import LayoutLayers, LayoutLink, LinkSegment, columns_needed, crossing, fold, layers_of
from bpt.apps.draw.net_layout_place import place

Point = tuple[float, float]
Path = list[tuple[int, Point]]
MOVE, LINE, QUADRATIC, CUBIC = 1, 2, 3, 4  # matplotlib's codes

# Distances across: between boxes, between a box and a link that passes it, between such links.
_APART, _PAST, _TRUNKS = 20.0, 16.0, 9.0
_WIRES = 7.0  # distance between wires, the links from one column to the next
_TURN = 5.0  # radius of the wires' corners
_GUTTER = 26.0  # space at both sides of the wires between two columns
_PORTS = 11.0  # distance between the arrows into a box
_STRAIGHT = 6.5  # length of the straight end of an arrow


@dataclass(frozen=True)
class Style:
    """The measures of a drawing, in points.

    Attributes:
        gap: the space behind each rank.
        stem: the length of the straight beginning of a curve.
        page: the length of a page.
        aspect: the wanted length of a folded drawing, relative to its width.
    """

    gap: float
    stem: float
    page: float
    aspect: float


@dataclass(frozen=True)
class Rectangle:
    """The place of a box: its corner nearest to the origin, and its sizes."""

    along: float
    across: float
    length: float
    width: float


@dataclass(frozen=True)
class Label:
    """The place of a blob's label, at the beginning of its curve."""

    box: int
    blob: str
    at: Point


@dataclass(frozen=True)
class Geometry:
    """The shapes to draw.

    Attributes:
        rectangles: the place of each box.
        curves: the lines of the links.
        heads: the points of the arrows.
        labels: the places of the blobs' labels.
        length: the drawing's size along the arrows.
        width: the drawing's size across the arrows.
    """

    rectangles: list[Rectangle]
    curves: list[Path]
    heads: list[Point]
    labels: list[Label]
    length: float
    width: float


def geometry(sizes: Sequence[Point], links: Sequence[LayoutLink], style: Style, columns: int = 0) -> Geometry:
    """Return the places of boxes, and the curves of the links between them.

    Args:
        sizes: the size of each box, along and across.
        links: links from boxes with lower numbers to boxes with higher ones.
        style: the measures.
        columns: the largest number of columns; 0: as many as fill a page.
    """
    layers = layers_of(len(sizes), links)
    return _Plan(layers, sizes, style, columns).geometry()


class _Plan:
    """The places of all vertices, from which ``geometry`` makes the shapes."""

    def __init__(self, layers: LayoutLayers, sizes: Sequence[Point], style: Style, columns: int) -> None:
        self.layers, self.sizes, self.style = layers, sizes, style
        across = place(layers, self._distance)
        self.depth = [max((self._size(v)[0] for v in rank), default=0.0) for rank in layers.ranks]
        lengths = [depth + style.gap for depth in self.depth]
        width = max((across[v] + self._size(v)[1] for rank in layers.ranks for v in rank), default=0.0)
        columns = columns or columns_needed(sum(lengths), width + 2 * _GUTTER, style.page, style.aspect)
        self.first = fold(layers, lengths, columns)
        self.column = [sum(rank >= first for first in self.first) - 1 for rank in range(len(layers.ranks))]
        self.wires = {column: crossing(layers, first) for column, first in enumerate(self.first) if column}
        most = max(self.wires.values(), default=0)
        self.top = _TURN + _WIRES * (most + 1) if most else 0.0
        self.start = self._starts(lengths)
        self.left: list[float] = []  # place of the first wire that comes to each column
        self.across = self._shifted(across)
        self.width = max((self.across[v] + self._size(v)[1] / 2 for rank in layers.ranks for v in rank), default=0.0)
        ends = [start + depth for start, depth in zip(self.start, self.depth, strict=True)]
        self.bottom = [
            max((end for end, own in zip(ends, self.column, strict=True) if own == column), default=0.0)
            for column in range(len(self.first))
        ]
        low = [self.bottom[column - 1] + style.stem + _TURN + _WIRES * wires for column, wires in self.wires.items()]
        self.length = max([*ends, *low], default=0.0)
        self.out = self._out_ports()
        self.into = self._in_ports()

    def _size(self, vertex: int) -> Point:
        return (0.0, 0.0) if self.layers.is_dummy(vertex) else self.sizes[vertex]

    def _distance(self, one: int, other: int) -> float:
        dummies = self.layers.is_dummy(one) + self.layers.is_dummy(other)
        return (self._size(one)[1] + self._size(other)[1]) / 2 + (_APART, _PAST, _TRUNKS)[dummies]

    def _starts(self, lengths: Sequence[float]) -> list[float]:
        starts: list[float] = []
        for rank in range(len(lengths)):
            begins = rank == 0 or self.column[rank] != self.column[rank - 1]
            starts.append(self.top if begins else starts[-1] + lengths[rank - 1])
        return starts

    def _shifted(self, across: Sequence[float]) -> list[float]:
        """Return the places of all vertices, with columns beside each other and room for wires between them."""
        shifted = list(across)
        edge = 0.0
        for column in range(len(self.first)):
            own = [v for rank, at in zip(self.layers.ranks, self.column, strict=True) if at == column for v in rank]
            least = min((across[v] - self._size(v)[1] / 2 for v in own), default=0.0)
            most = max((across[v] + self._size(v)[1] / 2 for v in own), default=0.0)
            if column:
                self.left.append(edge + _GUTTER)
                edge += 2 * _GUTTER + _WIRES * (self.wires[column] - 1)
            else:
                self.left.append(0.0)
            for vertex in own:
                shifted[vertex] = across[vertex] - least + edge
            edge += most - least
        return shifted

    def _out_ports(self) -> dict[tuple[int, str], float]:
        """Return where each blob leaves its box: in the middle if its curve is straight, else towards its targets."""
        targets: dict[int, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for segment in self.layers.segments:
            if not self.layers.is_dummy(segment.upper):
                targets[segment.upper][segment.blob].append(self.across[segment.lower])
        ports: dict[tuple[int, str], float] = {}
        for box, blobs in targets.items():
            middle, width = self.across[box], self._size(box)[1]
            straight = [blob for blob, places in blobs.items() if middle in places]
            centre = straight[0] if straight else next(iter(blobs)) if len(blobs) == 1 else None
            for side in (-1, 1):
                others = sorted(
                    (blob for blob in blobs if blob != centre and (_mean(blobs[blob]) < middle) == (side < 0)),
                    key=lambda blob: side * _mean(blobs[blob]),
                )
                for blob, part in zip(others, _spread(len(others)), strict=True):
                    ports[box, blob] = middle + side * part * width
            if centre is not None:
                ports[box, centre] = middle
        return ports

    def _in_ports(self) -> dict[LinkSegment, float]:
        """Return where each arrow reaches its box, in the order of the places that the arrows come from."""
        arrows: dict[int, list[LinkSegment]] = defaultdict(list)
        for segment in self.layers.segments:
            if not self.layers.is_dummy(segment.lower):
                arrows[segment.lower].append(segment)
        ports: dict[LinkSegment, float] = {}
        for box, segments in arrows.items():
            middle = self.across[box]
            segments.sort(key=self._comes_from)
            straight = [at for at, segment in enumerate(segments) if self._comes_from(segment) == middle]
            centre = straight[0] if straight else (len(segments) - 1) / 2
            step = min(_PORTS, 0.8 * self._size(box)[1] / max(1, len(segments)))
            for at, segment in enumerate(segments):
                ports[segment] = middle + (at - centre) * step
        return ports

    def _comes_from(self, segment: LinkSegment) -> float:
        return self.out.get((segment.upper, segment.blob), self.across[segment.upper])

    def geometry(self) -> Geometry:
        rectangles = []
        for box in range(self.layers.boxes):
            length, width = self.sizes[box]
            rank = self.layers.rank_of[box]
            along = self.start[rank] + (self.depth[rank] - length) / 2
            rectangles.append(Rectangle(along, self.across[box] - width / 2, length, width))
        curves: list[Path] = []
        heads: list[Point] = []
        labels = {
            (box, blob): Label(box, blob, (rectangles[box].along + rectangles[box].length, port))
            for (box, blob), port in self.out.items()
        }
        entries = self._wires(rectangles, curves)
        for segment in self.layers.segments:
            start = entries.get((segment.upper, segment.blob)) if self._folds(segment) else None
            path, end = self._curve(segment, rectangles, start)
            curves.append(path)
            if not self.layers.is_dummy(segment.lower):
                heads.append(end)
        return Geometry(rectangles, curves, heads, list(labels.values()), self.length, self.width)

    def _folds(self, segment: LinkSegment) -> bool:
        return self.column[self.layers.rank_of[segment.upper]] != self.column[self.layers.rank_of[segment.lower]]

    def _begin(self, segment: LinkSegment, rectangles: Sequence[Rectangle]) -> Point:
        rank = self.layers.rank_of[segment.upper]
        if self.layers.is_dummy(segment.upper):
            return self.start[rank] + self.depth[rank], self.across[segment.upper]
        box = rectangles[segment.upper]
        return box.along + box.length, self.out[segment.upper, segment.blob]

    def _curve(self, segment: LinkSegment, rectangles: Sequence[Rectangle], entry: Point | None) -> tuple[Path, Point]:
        """Return the curve of a segment, and its end; it also passes the segment's lower vertex if that is a dummy.

        The curve begins at ``entry``, where a wire enters the column, or without one at the upper vertex.
        """
        begin = entry or self._begin(segment, rectangles)
        rank = self.layers.rank_of[segment.lower]
        dummy = self.layers.is_dummy(segment.lower)
        end = (self.start[rank], self.across[segment.lower]) if dummy else (
            rectangles[segment.lower].along, self.into[segment],
        )  # fmt: skip
        path: Path = [(MOVE, begin)]
        if begin[1] != end[1]:
            above = self.layers.rank_of[segment.upper]
            stem = begin[0] if entry else self.start[above] + self.depth[above] + self.style.stem
            stop = self.start[rank] - (0 if dummy else _STRAIGHT)
            middle = (stem + stop) / 2
            path += [(LINE, (stem, begin[1])), (CUBIC, (middle, begin[1])), (CUBIC, (middle, end[1]))]
            path += [(CUBIC, (stop, end[1]))]
        path.append((LINE, end))
        if dummy:
            path.append((LINE, (self.start[rank] + self.depth[rank], end[1])))
        return path, end

    def _wires(self, rectangles: Sequence[Rectangle], curves: list[Path]) -> dict[tuple[int, str], Point]:
        """Add the wires from each column to the next to ``curves``, and return where each blob enters its column."""
        targets: dict[int, dict[tuple[int, str], list[LinkSegment]]] = defaultdict(lambda: defaultdict(list))
        for segment in self.layers.segments:
            if self._folds(segment):
                column = self.column[self.layers.rank_of[segment.lower]]
                targets[column][segment.upper, segment.blob].append(segment)
        entries: dict[tuple[int, str], Point] = {}
        for column, wires in targets.items():
            # The rightmost wire turns first and enters at the right, so that no wire crosses another.
            keys = sorted(wires, key=lambda key: self._begin(wires[key][0], rectangles)[1], reverse=True)
            for number, key in enumerate(keys):
                begin = self._begin(wires[key][0], rectangles)
                ports = [self.into.get(segment, self.across[segment.lower]) for segment in wires[key]]
                low = self.bottom[column - 1] + self.style.stem + _TURN + _WIRES * number
                lane = self.left[column] + _WIRES * number
                high = self.top - _TURN - _WIRES * (len(keys) - number) - _STRAIGHT
                entry = (high + _TURN, ports[0] if len(ports) == 1 else _mean(ports))
                curves.append(_rounded([begin, (low, begin[1]), (low, lane), (high, lane), (high, entry[1]), entry]))
                entries[key] = entry
        return entries


def _rounded(points: Sequence[Point]) -> Path:
    """Return a line through ``points``, which runs along the axes, with round corners."""
    path: Path = [(MOVE, points[0])]
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        path += [(LINE, _towards(corner, before)), (QUADRATIC, corner), (QUADRATIC, _towards(corner, after))]
    return [*path, (LINE, points[-1])]


def _towards(corner: Point, other: Point) -> Point:
    length = abs(other[0] - corner[0]) + abs(other[1] - corner[1])
    part = min(1.0, _TURN / length) if length else 0.0
    return corner[0] + part * (other[0] - corner[0]), corner[1] + part * (other[1] - corner[1])


def _spread(count: int) -> list[float]:
    """Return the distances of ``count`` ports from the middle of a box's side, relative to the box's width."""
    if count == 1:
        return [0.36]
    return [0.25 + 0.2 * number / (count - 1) for number in range(count)]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
