"""What the server knows of the machines of a computing node."""

from __future__ import annotations

from bpt.train.outer.roles import NodeFacts


def test_a_node_has_the_power_of_its_ranks() -> None:
    ranks = [NodeFacts("a", 2000.0, 2), NodeFacts("b", 1000.0, 1), NodeFacts("a", 500.0, 4)]
    assert NodeFacts.combined(ranks) == NodeFacts("a+b", 3500.0, 7)
    assert NodeFacts.combined(ranks[:1]) == ranks[0]


def test_of_one_of_its_ranks_it_is_unknown() -> None:
    assert NodeFacts.combined([NodeFacts("a", 2000.0, 2), NodeFacts("a", None, 2)]) == NodeFacts("a", None, 4)
