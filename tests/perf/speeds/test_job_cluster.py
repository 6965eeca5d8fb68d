"""The cluster that measured ranks are, by hand; and one that is measured."""

from __future__ import annotations

import math
from math import inf
from pathlib import Path

import pytest

from bpt.nn.net_graph import build_graph_of
from bpt.parallel.cluster.cluster import Cluster, IntraNodeLink, NodeLink
from bpt.perf.speeds import job_cluster
from bpt.perf.speeds.cluster_from_measurements import MeasuredRank, Sums, cluster_of, speed_of
from bpt.perf.speeds.job_cluster import measured_cluster
from bpt.perf.speeds.ping_pong import MeasuredLink, MeasuredLinks
from bpt.system.comm.base import Communicator
from bpt.system.device import CPU
from tests.support.doubles.thread_ranks import run_ranks
from tests.support.small_solver import small_solver


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ({8: 3.0, 4: 2.0}, (4.0, 1.0)),  # a second for four samples more
        ({8: 2.0, 4: 1.0}, (4.0, 0.0)),
        # No pass takes less than nothing: the nearest line through nothing, 1 = a n / t in the mean of squares.
        ({8: 2.0, 4: 0.5}, (80 / 12, 0.0)),  # n / t is 4 and 8
        ({8: 2.0, 4: 2.5}, ((16 + 2.56) / 5.6, 0.0)),  # 4 and 1.6
        ({8: 5.0, 4: 3.0, 2: 2.0}, (2.0, 1.0)),
        ({8: 6.0, 4: 3.0, 2: 2.0}, (19 / 12, 90 / 133)),  # nearest to all, by the normal equations
        ({8: 2.0}, (4.0, 0.0)),
    ],
)
def test_the_line_through_two_times(times: dict[int, float], expected: tuple[float, float]) -> None:
    assert speed_of(times) == pytest.approx(expected)


def test_hosts_and_what_lies_between_them() -> None:
    """Two ranks of a and one of b, which is behind the slower link; 0.2 s a message, there or back."""
    ranks = [MeasuredRank({8: 2.0}, 4, 100.0), MeasuredRank({8: 4.0}, 4, 100.0), MeasuredRank({8: 8.0}, 2, 300.0)]
    links = (MeasuredLink(0, 1, 0.01, 1000.0), MeasuredLink(0, 2, 0.2, 50.0), MeasuredLink(1, 2, 0.2, 40.0))
    a, b = (made := cluster_of("aab", ranks, MeasuredLinks(links, 0.5))).nodes
    assert (a.name, a.ranks, a.speed, a.cores, a.memory) == ("a", 2, 3.0, 4, 200.0)
    assert (b.name, b.ranks, b.speed, b.cores, b.memory) == ("b", 1, 1.0, 2, 300.0)
    assert {(node.latency, node.bandwidth) for node in (a, b)} == {(0.1, 50.0)}
    assert made.within == IntraNodeLink(0.01, 1000.0)
    assert made.hosts == (0, 0, 1)


def test_a_pair_that_is_unlike_the_others_is_told() -> None:
    """Between a and b it is near: all others say half of 0.1 s a node."""
    ranks = [MeasuredRank({8: 2.0}, 4, 1.0)] * 4
    far = [MeasuredLink(one, other, 0.1, 100.0) for one, other in ((0, 2), (0, 3), (1, 2), (1, 3), (2, 3))]
    links = (MeasuredLink(0, 1, 0.01, 110.0), *far)
    made = cluster_of("abcd", ranks, MeasuredLinks(links, 0.5, shared=150.0))
    assert made.shared == 150.0
    assert [node.latency for node in made.nodes] == [0.05] * 4
    assert made.links == (NodeLink("a", "b", 0.01, 110.0),)


def speeds(*sums: Sums) -> list[MeasuredRank]:
    return [MeasuredRank({8: 2.0}, 4, 1.0, sums=each) for each in sums]


def test_what_borders_take() -> None:
    """The mean of the ranks of a host, as their speeds; of each rank the line through both, neither part below 0."""
    measured = {8: 4.0, 2: 2.5}, {8: 2.0, 2: 0.25}, {8: 3.0, 2: 4.0}
    ranks = [MeasuredRank({8: 2.0}, 4, 1.0, borders=borders) for borders in measured]
    made = cluster_of("aab", ranks, MeasuredLinks((MeasuredLink(0, 1, 0.1, 9.0), MeasuredLink(0, 2, 0.1, 9.0)), 0.5))
    assert [(node.border, node.border_overhead) for node in made.nodes] == [(0.25, 1.0), (0.0, 4.0)]
    alone = cluster_of("a", [MeasuredRank({8: 2.0}, 4, 1.0, borders={8: 4.0})], MeasuredLinks((), 0.5))
    assert (alone.nodes[0].border, alone.nodes[0].border_overhead) == (0.5, 0.0)


def test_what_waking_takes() -> None:
    """A sum is as long as on the rank that waits least for others: 7 s, of which a second for each step is latency.

    The median of the shorter one of each sum is 5 s, which no rank needs for half of its sums.
    """
    short, ring = [[5.0, 9.0, 8.0], [7.0, 2.0, 30.0]], [[45.0, 50.0, 90.0], [90.0, 47.0, 45.0]]
    ranks = speeds(*(Sums(few, ring=many, nbytes=400) for few, many in zip(short, ring, strict=True)))
    made = cluster_of("aa", ranks, MeasuredLinks((MeasuredLink(0, 1, 1.0, 9.0),), 0.5))
    assert made.waking == 7.0 - 1.0
    assert made.within.bandwidth == pytest.approx(400 / 40.0)  # a ring of two: each sends all of it
    four = cluster_of("abab", ranks * 2, MeasuredLinks((MeasuredLink(0, 1, 1.0, 9.0),), 0.5))
    assert four.waking == 7.0 - 2.0


def test_what_waking_takes_while_ranks_compute() -> None:
    ranks = speeds(Sums([2.0], busy=[9.0, 8.0, 30.0]), Sums([2.0], busy=[9.0, 7.0, 31.0]))
    made = cluster_of("ab", ranks, MeasuredLinks((MeasuredLink(0, 1, 1.0, 9.0),), 0.5))
    assert (made.waking, made.busy_waking) == (2.0 - 1.0, 9.0 - 1.0)


def test_what_sums_take_while_ranks_compute() -> None:
    """A sum alone takes 4 s on the rank that comes last, and 10 s beside computing."""
    alone, busy = [[4.0], [7.0]], [[10.0], [11.0]]
    ranks = speeds(*(Sums(ring=one, busy_ring=other, nbytes=400) for one, other in zip(alone, busy, strict=True)))
    made = cluster_of("ab", ranks, MeasuredLinks((MeasuredLink(0, 1, 1.0, 9.0),), 0.5))
    assert made.busy_efficiency == pytest.approx(0.4)


def test_what_hinders() -> None:
    """The mean of the ranks of a host."""
    ranks = [MeasuredRank({8: 2.0}, 4, 1.0, interference=each) for each in (0.25, 0.75, 2.0)]
    made = cluster_of("aab", ranks, MeasuredLinks((MeasuredLink(0, 1, 0.1, 9.0), MeasuredLink(0, 2, 0.1, 9.0)), 0.5))
    assert [node.interference for node in made.nodes] == [0.5, 2.0]


def test_what_varies_by_itself() -> None:
    """Two nodes differ by 0, ±0.1, ±0.2 from their mean, quartiles ±0.1: 0.2 / 1.349 of a normal distribution, and
    as the mean follows each by half, sqrt(2) times as much. What slows both down is no noise, nor what happens once."""
    apart = [0.0, 0.1, -0.1, 0.2, -0.2, 0.1, -0.1, 9.0, -9.0]
    common = [1.0, 1.5, 1.0, 7.0, 1.0, 1.0, 0.9, 1.0, 1.0]
    one = [mean + each for mean, each in zip(common, apart, strict=True)]
    other = [mean - each for mean, each in zip(common, apart, strict=True)]
    ranks = [MeasuredRank({8: 2.0}, 4, 1.0, course=each) for each in (one, other)]
    made = cluster_of("ab", ranks, MeasuredLinks((MeasuredLink(0, 1, 0.1, 9.0),), 0.5))
    assert [node.noise for node in made.nodes] == pytest.approx([0.2 / 1.349 * math.sqrt(2)] * 2)
    assert cluster_of("a", ranks[:1], MeasuredLinks((), 0.5)).nodes[0].noise == 0


def test_how_late_the_last_of_a_node_is() -> None:
    """Of two that take turns a tenth too late or too early: the last of two normal ones is 0.56 deviations late."""
    courses = [1.1, 0.9, 1.1, 0.9], [0.9, 1.1, 0.9, 1.1]
    made = cluster_of("aa", [MeasuredRank({8: 2.0}, 4, 1.0, course=each) for each in courses], MeasuredLinks((), 0.5))
    assert made.nodes[0].noise == pytest.approx(0.1 / 0.56, rel=0.05)


def test_hosts_that_sum_slower_than_they_send() -> None:
    """Beside a short sum of 1 s, 400 bytes take 8 s round the ring: of two hosts all of them each way, and of two ranks
    a host, too, three quarters of them twice."""
    ranks = speeds(*[Sums([1.0], ring=[9.0], nbytes=400)] * 2)
    for alone, shared in ((100.0, 2 * 50.0), (50.0, inf)):
        made = cluster_of("ab", ranks, MeasuredLinks((MeasuredLink(0, 1, 0.1, alone),), 0.5))
        assert made.shared == pytest.approx(shared)
    within = MeasuredLink(0, 1, 0.1, 200.0)
    made = cluster_of("aabb", ranks * 2, MeasuredLinks((within, MeasuredLink(0, 2, 0.1, 400.0)), 0.5))
    assert made.shared == pytest.approx(2 * 1.5 * 50.0)


def test_a_library_that_sums_slower_than_the_ring() -> None:
    """By the ring 4 s beside the short sum, by the library 16 s; on links that the ring fills."""
    ranks = speeds(*[Sums([1.0], [17.0], [5.0], nbytes=400)] * 2)
    made = cluster_of("ab", ranks, MeasuredLinks((MeasuredLink(0, 1, 0.1, 100.0),), 0.5))
    assert (made.efficiency, made.shared) == (0.25, inf)
    alone = speeds(Sums([1e-6], [9e-6], [2e-6], nbytes=400))  # where nothing travels, times are those of a call
    assert cluster_of("a", alone, MeasuredLinks((), 0.0)).efficiency == 1
    assert (
        cluster_of("ab", speeds(Sums(), Sums()), MeasuredLinks((MeasuredLink(0, 1, 0.1, 100.0),), 0.5)).efficiency == 1
    )


def test_one_host_has_what_an_allreduce_reaches() -> None:
    """Each of two ranks sends and gets half of it twice: a byte in 0.5 s."""
    ranks = [MeasuredRank({8: 2.0}, 4, 1.0)] * 2
    (node,) = (made := cluster_of("aa", ranks, MeasuredLinks((MeasuredLink(0, 1, 0.1, 9.0),), 0.5))).nodes
    assert made.within == IntraNodeLink(0.1, 2.0)
    assert (node.latency, node.bandwidth) == (0.0, inf)
    assert cluster_of("aa", ranks, MeasuredLinks((), 0.5), on_gpu=True).nodes[0].cores == 0


def test_a_measurement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_cluster, "SECONDS", 0.0)
    monkeypatch.setattr(job_cluster, "_LINKS", 0.01)
    plan = small_solver(tmp_path)

    def measure(comm: Communicator) -> Cluster:
        return measured_cluster(plan, build_graph_of(plan.train), CPU, comm)

    first, second = run_ranks(2, measure, hosts=["a", "b"])
    assert first == second
    assert [node.name for node in first.nodes] == ["a", "b"]
    for node in first.nodes:
        assert 0 < node.speed < 1e9 and 0 <= node.overhead < 10 and node.memory > 2**20
        assert 0 < node.latency < 10 and node.bandwidth > 0
