"""Rectangles and curves."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from bpt.apps.draw.net_layout import LayoutLink
from bpt.apps.draw.net_layout_geometry import Geometry, Style, geometry
from tests.apps.draw.layout_graphs import chain, graphs

STYLE = Style(gap=30.0, stem=10.0, page=1000.0, aspect=1.3)


def test_a_chain_by_hand() -> None:
    """Boxes of 20×100, 30 apart."""
    found = geometry([(20.0, 100.0)] * 3, chain(0, 1, 2), STYLE)
    assert [(box.along, box.across) for box in found.rectangles] == [(0, 0), (50, 0), (100, 0)]
    assert (found.length, found.width) == (120, 100)
    assert found.heads == [(50, 50), (100, 50)]
    assert found.curves == [[(1, (20, 50)), (2, (50, 50))], [(1, (70, 50)), (2, (100, 50))]]
    assert [(label.box, label.blob, label.at) for label in found.labels] == [(0, "b0", (20, 50)), (1, "b1", (70, 50))]


def test_a_folded_chain() -> None:
    found = geometry([(20.0, 100.0)] * 4, chain(0, 1, 2, 3), STYLE, columns=2)
    starts = [(box.along, box.across) for box in found.rectangles]
    assert starts[0][0] == starts[2][0]
    assert starts[1][0] == starts[3][0]
    assert starts[0][1] == starts[1][1] == 0
    assert starts[2][1] == starts[3][1] >= 100
    inside(found)


def test_several_blobs_leave_and_reach_a_box_apart() -> None:
    found = geometry([(20.0, 100.0)] * 3, [*chain(0, 1, 2), LayoutLink(0, 2, "label")], STYLE)
    ports = {label.blob: label.at[1] for label in found.labels if label.box == 0}
    assert ports["b0"] == 50
    assert ports["label"] == 86  # 0.36 of the width from the middle
    ends = sorted(head[1] for head in found.heads if head[0] == found.rectangles[2].along)
    assert ends == [50, 61]


def inside(found: Geometry) -> None:
    """Everything is within the page, and no boxes overlap."""
    for one, other in combinations(found.rectangles, 2):
        apart = (
            one.along + one.length <= other.along + 1e-9
            or other.along + other.length <= one.along + 1e-9
            or one.across + one.width <= other.across + 1e-9
            or other.across + other.width <= one.across + 1e-9
        )
        assert apart, (one, other)
    points = [point for curve in found.curves for _, point in curve] + found.heads
    for along, across in points:
        assert -1e-6 <= along <= found.length + 1e-6
        assert -1e-6 <= across <= found.width + 1e-6


@settings(deadline=None, max_examples=60)
@given(graphs(), st.integers(0, 4))
def test_any_graph(graph: tuple[int, list[LayoutLink]], columns: int) -> None:
    boxes, links = graph
    inside(geometry([(20.0 + box, 60.0 + box) for box in range(boxes)], links, STYLE, columns))
