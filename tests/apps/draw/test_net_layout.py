"""Ranks, orders and columns of a layout."""

from __future__ import annotations

from hypothesis import given, settings

from bpt.apps.draw.net_layout import (
    LayoutLink,
    columns_needed,
    crossing,
    crossings,
    fold,
    layers_of,
    longest_paths,
    places,
)
from tests.apps.draw.layout_graphs import chain, graphs


def test_ranks_are_longest_paths() -> None:
    """0 → 1 → 2 → 4 and 0 → 3 → 4; a source, 5, stands right before its reader."""
    links = [*chain(0, 1, 2, 4, 6), *chain(0, 3, 4), LayoutLink(5, 6, "label")]
    assert longest_paths(7, links) == [0, 1, 2, 1, 3, 3, 4]


def test_a_long_link_has_a_dummy_in_each_rank() -> None:
    layers = layers_of(4, [*chain(0, 1, 2, 3), LayoutLink(0, 3, "label")])
    assert [sorted(rank) for rank in layers.ranks] == [[0], [1, 4], [2, 5], [3]]
    assert layers.above[3] == [5, 2] or layers.above[3] == [2, 5]
    assert layers.is_dummy(4)
    assert not layers.is_dummy(3)


def test_links_of_one_blob_share_their_dummies() -> None:
    """The label goes to boxes 2, 3 and 4 of a chain: one trunk, which each link leaves."""
    links = [*chain(0, 1, 2, 3, 4), *(LayoutLink(0, target, "label") for target in (2, 3, 4))]
    layers = layers_of(5, links)
    assert [len(rank) for rank in layers.ranks] == [1, 2, 2, 2, 1]
    assert len(layers.segments) == 4 + 3 + 3


def test_crossings_are_removed() -> None:
    """Two chains whose ends are written the other way round."""
    links = [LayoutLink(0, 3, "a"), LayoutLink(1, 2, "b"), LayoutLink(3, 4, "c"), LayoutLink(2, 5, "d")]
    layers = layers_of(6, [link for link in links if link.source < link.target])
    assert crossings(layers) == 0


def test_crossings_are_counted() -> None:
    layers = layers_of(4, [LayoutLink(0, 2, "a"), LayoutLink(0, 3, "a"), LayoutLink(1, 2, "b"), LayoutLink(1, 3, "b")])
    assert crossings(layers) == 1  # of K(2, 2)


@settings(deadline=None)
@given(graphs())
def test_any_graph(graph: tuple[int, list[LayoutLink]]) -> None:
    boxes, links = graph
    layers = layers_of(boxes, links)
    assert sorted(vertex for rank in layers.ranks for vertex in rank) == list(range(len(layers.rank_of)))
    for segment in layers.segments:
        assert layers.rank_of[segment.lower] == layers.rank_of[segment.upper] + 1
    for link in links:  # each can be followed
        ends = {link.source}
        for _ in range(layers.rank_of[link.target] - layers.rank_of[link.source]):
            ends = {s.lower for s in layers.segments if s.upper in ends and s.blob == link.blob}
        assert link.target in ends
    assert len(places(layers)) == len(layers.rank_of)


def test_columns() -> None:
    assert columns_needed(length=600, width=100, page=700, aspect=1.3) == 1
    # 3000 / n = 1.2 * 100 n → n = 5; no more than pages
    assert columns_needed(length=3000, width=100, page=500, aspect=1.2) == 5
    assert columns_needed(length=3000, width=100, page=1500, aspect=1.2) == 2
    assert columns_needed(length=701, width=5000, page=700, aspect=1.3) == 2


def test_an_even_cut() -> None:
    layers = layers_of(8, chain(*range(8)))
    assert fold(layers, [10.0] * 8, 1) == [0]
    assert fold(layers, [10.0] * 8, 2) == [0, 4]
    assert fold(layers, [10.0] * 8, 4) == [0, 2, 4, 6]


def test_a_cut_where_few_blobs_cross() -> None:
    """A chain of 20; 9 → 12 passes 11, so that the cut before 10 or 11 would cut two blobs. Rank 9 is near enough."""
    layers = layers_of(20, [*chain(*range(20)), LayoutLink(9, 12, "shortcut")])
    assert [crossing(layers, rank) for rank in (9, 10, 11, 12, 13)] == [1, 2, 2, 2, 1]
    assert fold(layers, [10.0] * 20, 2) == [0, 9]


def test_more_columns_than_ranks() -> None:
    layers = layers_of(2, chain(0, 1))
    assert fold(layers, [10.0, 10.0], 9)[0] == 0
