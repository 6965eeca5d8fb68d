"""Where a long drawing goes on in another column."""

from __future__ import annotations

from bpt.draw.net_layout import Link, layers_of
from bpt.draw.net_layout_fold import columns_needed, crossing, fold
from tests.draw.test_net_layout import chain


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
    layers = layers_of(20, [*chain(*range(20)), Link(9, 12, "shortcut")])
    assert [crossing(layers, rank) for rank in (9, 10, 11, 12, 13)] == [1, 2, 2, 2, 1]
    assert fold(layers, [10.0] * 20, 2) == [0, 9]


def test_more_columns_than_ranks() -> None:
    layers = layers_of(2, chain(0, 1))
    assert fold(layers, [10.0, 10.0], 9)[0] == 0
