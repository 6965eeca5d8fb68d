"""Places across the ranks: straight paths, distances kept."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings

from bpt.apps.draw.net_layout import Layers, LayoutLink, layers_of
from bpt.apps.draw.net_layout_place import blocks, place
from tests.apps.draw.layout_graphs import chain, graphs


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


def check(layers: Layers, across: list[float]) -> None:
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
def test_any_graph(graph: tuple[int, list[LayoutLink]]) -> None:
    layers = layers_of(*graph)
    check(layers, place(layers, ten))
