"""Rectangles and curves, and places across the ranks: straight paths, distances kept."""

from __future__ import annotations

from itertools import combinations, pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from bpt.apps.draw.net_layout import LayoutLayers, LayoutLink, layers_of
from bpt.apps.draw.net_layout_geometry import Geometry, Style, geometry
from bpt.apps.draw.net_layout_place import blocks, place
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
def test_geometry_any_graph(graph: tuple[int, list[LayoutLink]], columns: int) -> None:
    boxes, links = graph
    inside(geometry([(20.0 + box, 60.0 + box) for box in range(boxes)], links, STYLE, columns))


def ten(one: int, other: int) -> float:
    return 10.0


def test_a_chain_is_straight() -> None:
    assert place(layers_of(4, chain(0, 1, 2, 3)), ten) == [0.0] * 4


def test_a_long_link_is_straight_beside_a_straight_chain() -> None:
    layers = layers_of(5, [*chain(0, 1, 2, 3, 4), LayoutLink(0, 4, "label")])
    across = place(layers, ten)
    assert len({across[box] for box in range(5)}) == 1
    [beside] = {across[dummy] for dummy in range(5, 8)}
    assert abs(beside - across[0]) == 10


def test_branches_stand_around_the_longest_path() -> None:
    """Three branches of one box each; their middle one is in line with what is before and behind."""
    links = [*chain(0, 1, 4), *chain(0, 2, 4), *chain(0, 3, 4)]
    across = place(layers_of(5, links), ten)
    assert sorted(across[1:4]) == [0, 10, 20]
    assert across[0] == across[4] == 10


def test_what_two_equal_branches_part_from_and_meet_in_is_between_them() -> None:
    """A siamese net: 0 → 1, then 2 → 3 → 4 and 5 → 6 → 7 side by side, then 8, which also reads a blob of box 0."""
    links = [*chain(0, 1, 2, 3, 4, 8), LayoutLink(1, 5, "other"), *chain(5, 6, 7, 8), LayoutLink(0, 8, "label")]
    across = place(layers_of(9, links), ten)
    assert across[2] == across[3] == across[4]
    assert across[5] == across[6] == across[7]
    assert abs(across[2] - across[5]) == 10
    assert across[0] == across[1] == across[8] == (across[2] + across[5]) / 2


def test_a_short_branch_comes_as_near_as_it_may() -> None:
    """0 → 1 → 2 → 5 and 0 → 3 → 5; box 4 reads nothing but box 3, whose place it takes."""
    layers = layers_of(6, [*chain(0, 1, 2, 5), *chain(0, 3, 5), LayoutLink(3, 4, "x")])
    across = place(layers, ten)
    assert abs(across[3] - across[1]) == 10


def check(layers: LayoutLayers, across: list[float]) -> None:
    for rank in layers.ranks:
        for left, right in pairwise(rank):
            assert across[right] - across[left] >= 10 - 1e-9
    of = blocks(layers)
    for one, other in pairwise(range(len(of))):
        if of[one] == of[other]:
            assert across[one] == across[other]
    assert min(across) == 0


@settings(deadline=None)
@given(graphs())
def test_place_any_graph(graph: tuple[int, list[LayoutLink]]) -> None:
    layers = layers_of(*graph)
    check(layers, place(layers, ten))
