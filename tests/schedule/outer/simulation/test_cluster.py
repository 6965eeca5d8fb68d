"""Nodes, and how nodes of a kind differ."""

from __future__ import annotations

import math
import random
from statistics import fmean, stdev

import pytest

from bpt.schedule.outer.simulation.cluster import Cluster, Node, alike


def test_frequencies_are_speeds_unless_told() -> None:
    assert Cluster((Node("a", 10), Node("b", 30))).frequencies == [10, 30]


def test_frequencies_of_some_are_scaled_to_those_that_are_told() -> None:
    """2.4 and 1.2 GHz at 10 and 20 samples a second: 0.12 GHz for each."""
    nodes = (Node("a", 10, frequency=2.4), Node("b", 20, frequency=1.2), Node("c", 100))
    assert Cluster(nodes).frequencies == pytest.approx([2.4, 1.2, 12])


def test_nodes_without_spread_are_alike() -> None:
    node = Node("a", 10)
    assert alike(node, 3, 0, random.Random(0)) == [node, node, node]


def test_spread_is_the_deviation_of_the_logarithm_of_speed() -> None:
    nodes = alike(Node("a", 10, noise=0.1), 4000, 0.3, random.Random(0))
    logarithms = [math.log(node.speed / 10) for node in nodes]
    assert fmean(logarithms) == pytest.approx(0, abs=0.02)
    assert stdev(logarithms) == pytest.approx(0.3, rel=0.04)
    assert {(node.name, node.noise) for node in nodes} == {("a", 0.1)}
    assert nodes == alike(Node("a", 10, noise=0.1), 4000, 0.3, random.Random(0))


@pytest.mark.parametrize("wrong", [{"speed": 0}, {"speed": math.inf}, {"noise": -1}, {"changes": ((2, 1), (1, 1))}])
def test_nodes_that_cannot_be(wrong: dict[str, object]) -> None:
    with pytest.raises(AssertionError):
        Node(**{"name": "a", "speed": 1, **wrong})  # type: ignore[arg-type]
