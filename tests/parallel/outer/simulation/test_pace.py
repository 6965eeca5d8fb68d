"""Clusters, the pace of their nodes, and what serves one after the other."""

from __future__ import annotations

import math
import random
from statistics import fmean, stdev

import pytest

from bpt.parallel.cluster.cluster import Cluster, Node, equal_nodes
from bpt.parallel.outer.simulation.simulated_worker import SpeedProfile


def test_frequencies_are_speeds_unless_told() -> None:
    assert Cluster((Node("a", 10), Node("b", 30))).frequencies == [10, 30]


def test_frequencies_of_some_are_scaled_to_those_that_are_told() -> None:
    """2.4 and 1.2 GHz at 10 and 20 samples a second: 0.12 GHz for each."""
    nodes = (Node("a", 10, frequency=2.4), Node("b", 20, frequency=1.2), Node("c", 100))
    assert Cluster(nodes).frequencies == pytest.approx([2.4, 1.2, 12])


def test_nodes_without_spread_are_alike() -> None:
    node = Node("a", 10)
    assert equal_nodes(node, 3, 0, random.Random(0)) == [node, node, node]


def test_spread_is_the_deviation_of_the_logarithm_of_speed() -> None:
    nodes = equal_nodes(Node("a", 10, noise=0.1), 4000, 0.3, random.Random(0))
    logarithms = [math.log(node.speed / 10) for node in nodes]
    assert fmean(logarithms) == pytest.approx(0, abs=0.02)
    assert stdev(logarithms) == pytest.approx(0.3, rel=0.04)
    assert {(node.name, node.noise) for node in nodes} == {("a", 0.1)}
    assert nodes == equal_nodes(Node("a", 10, noise=0.1), 4000, 0.3, random.Random(0))


@pytest.mark.parametrize("wrong", [{"speed": 0}, {"speed": math.inf}, {"noise": -1}, {"changes": ((2, 1), (1, 1))}])
def test_nodes_that_cannot_be(wrong: dict[str, object]) -> None:
    with pytest.raises(AssertionError):
        Node(**{"name": "a", "speed": 1, **wrong})  # type: ignore[arg-type]


# 1 until 10, then a half until 20, then twice.
CHANGES = ((10.0, 0.5), (20.0, 2.0))


@pytest.mark.parametrize(
    ("start", "work", "end"),
    [
        (0, 10, 10),  # all before the change
        (8, 4, 14),  # 2 at full speed, 2 at half
        (12, 2, 16),
        (8, 9, 21),  # 2, then 5 in ten seconds, then 2 at twice the speed
        (20, 4, 22),
        (30, 4, 32),
        (10, 0, 10),
        (5, 0, 5),
    ],
)
def test_work_across_changes(start: float, work: float, end: float) -> None:
    pace = SpeedProfile(CHANGES)
    assert pace.end(start, work) == pytest.approx(end)
    assert pace.done(start, end) == pytest.approx(work)


def test_without_changes_work_is_time() -> None:
    assert SpeedProfile().end(3, 4) == 7
    assert SpeedProfile().done(3, 5) == 2


def test_a_change_at_the_start_holds_from_the_start() -> None:
    assert SpeedProfile([(0.0, 0.5)]).end(0, 1) == 2


def test_of_two_changes_at_one_time_the_last_counts() -> None:
    assert SpeedProfile([(1.0, 0.25), (1.0, 0.5)]).end(0, 2) == 3


def test_against_small_steps() -> None:
    """The work of a millisecond each, added up."""
    generator = random.Random(1)
    for _ in range(20):
        changes = sorted((generator.randint(0, 5000) / 1000, generator.uniform(0.2, 3)) for _ in range(3))
        start = generator.randint(0, 3000)
        end = start + generator.randint(0, 4000)
        work = 0.0
        for step in range(start, end):
            work += [1.0, *(factor for at, factor in changes if at <= step / 1000)][-1] / 1000
        pace = SpeedProfile(changes)
        assert pace.done(start / 1000, end / 1000) == pytest.approx(work)
        assert pace.end(start / 1000, work) == pytest.approx(end / 1000)
