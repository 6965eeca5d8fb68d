"""What messages and collectives take, by hand: a link takes a second for 100 bytes, and a tenth of one for latency."""

from __future__ import annotations

import numpy as np
import pytest

from bpt.config.proto import bpt_pb2 as pb
from bpt.parallel.cluster.cluster import Cluster, IntraNodeLink, Node, NodeLink
from bpt.perf.forecast.rank_links import RankLinks

RING, TREE, CGDP, ALLREDUCE = (getattr(pb.ParallelParameter, name) for name in ("RING", "TREE", "CGDP", "ALLREDUCE"))
FOUR = RankLinks(Cluster((Node("n", 1.0, latency=0.05, bandwidth=100),) * 4))
SLOWLY = RankLinks(Cluster((Node("n", 1.0, latency=0.05, bandwidth=100),) * 4, efficiency=0.5))
PAIRS = RankLinks(
    Cluster((Node("n", 1.0, latency=0.05, bandwidth=100, ranks=2),) * 2, within=IntraNodeLink(0.01, 1000))
)


@pytest.mark.parametrize(
    ("links", "exchange", "nbytes", "seconds"),
    [
        (FOUR, RING, 400, 6 * (0.1 + 1.0)),  # six steps of 100 bytes
        (FOUR, ALLREDUCE, 400, 6.6),
        (FOUR, ALLREDUCE, 4, 2 * (0.1 + 0.04)),  # short: two steps of all of it
        (FOUR, TREE, 400, 2 * (0.1 + 4.0)),
        (FOUR, CGDP, 400, 6.6),  # nothing on a host
        (PAIRS, RING, 400, 6 * (0.1 + 1.0)),  # the slowest hop is that between the hosts
        (PAIRS, CGDP, 400, 2 * (0.01 + 0.2) + 0.1 + 4.0),  # on hosts, then between two: one step of all of it
        (PAIRS, ALLREDUCE, 400, 2 * (0.01 + 0.4) + 0.1 + 4.0),  # to one rank of each host, between these, and back
        (SLOWLY, ALLREDUCE, 400, 6 * (0.1 + 2.0)),  # the library; others fill the link
        (SLOWLY, RING, 400, 6.6),
        (SLOWLY, CGDP, 400, 6 * (0.1 + 2.0)),
        (FOUR, RING, 0, 0.0),
    ],
)
def test_collectives(links: RankLinks, exchange: int, nbytes: float, seconds: float) -> None:
    assert links.group(range(4)).summed(exchange, nbytes) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("links", "exchange", "expected"),
    [
        (FOUR, RING, (0, 2400)),  # each of four sends 6 x 100
        (PAIRS, RING, (1200, 1200)),  # of four hops two are between hosts
        (PAIRS, TREE, (1600, 800)),  # three messages there and three back, one of them across
        (PAIRS, CGDP, (1600, 800)),
        (PAIRS, ALLREDUCE, (1600, 800)),
    ],
)
def test_what_travels(links: RankLinks, exchange: int, expected: tuple[float, float]) -> None:
    assert links.group(range(4)).travelling(exchange, 400) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("links", "exchange", "everywhere", "seconds", "bytes_"),
    [
        (FOUR, ALLREDUCE, False, 6 * (0.1 + 0.5), (0, 1200)),  # as a ring of half the bytes
        (FOUR, TREE, False, 2 * (0.1 + 2.0), (0, 1800)),  # up with half of them, back with all
        (PAIRS, RING, False, 2 * (0.01 + 0.4) + 2 * (0.1 + 1.0), (1600, 400)),  # between 2 hosts two steps of 100
        (PAIRS, ALLREDUCE, True, 6 * (0.1 + 0.5), (600, 600)),
        (PAIRS, CGDP, True, 2 * (0.01 + 0.4) + 0.1 + 2.0, (1600, 400)),  # nothing is coded on a host
    ],
)
def test_a_codec_that_halves(
    links: RankLinks, exchange: int, everywhere: bool, seconds: float, bytes_: tuple[float, float]
) -> None:
    group = links.group(range(4))
    assert group.summed(exchange, 400, coded=200, everywhere=everywhere) == pytest.approx(seconds)
    assert group.travelling(exchange, 400, 200, everywhere) == pytest.approx(bytes_)


def test_messages_from_one_to_one() -> None:
    busy, late = PAIRS.crossing(np.array([0, 1]), np.array([1, 2]), np.array([100.0, 100.0]))
    assert busy.tolist() == pytest.approx([0.1, 1.0])
    assert late.tolist() == pytest.approx([0.01, 0.1])


def test_a_rank_alone_sends_nothing() -> None:
    assert FOUR.group([2]).summed(RING, 400) == 0
    assert FOUR.group([2]).travelling(RING, 400) == (0, 0)


def test_links_by_pair_and_what_all_share() -> None:
    """Of four nodes a, a, b, b those of one name are near each other; a ring has two hops of either kind."""
    nodes = tuple(Node(name, 1.0, latency=0.05, bandwidth=100) for name in "aabb")
    near = (NodeLink("a", "a", 0.01, 1000), NodeLink("b", "b", 0.02, 500))
    links = RankLinks(Cluster(nodes, links=near))
    ends = np.array([0, 3, 1]), np.array([1, 2, 2])
    busy, late = links.crossing(*ends, np.full(3, 100.0))
    assert busy.tolist() == pytest.approx([0.1, 0.2, 1.0])
    assert late.tolist() == pytest.approx([0.01, 0.02, 0.1])
    assert links.group([0, 1]).summed(RING, 400) == pytest.approx(2 * (0.01 + 0.2))
    assert links.group(range(4)).summed(RING, 400) == pytest.approx(6 * (0.1 + 1.0))
    far = RankLinks(Cluster(nodes, links=(*near, NodeLink("b", "a", 0.5, 10))))
    assert far.group(range(4)).summed(RING, 400) == pytest.approx(6 * (0.5 + 10.0))
    shared = RankLinks(Cluster(nodes, links=near, shared=200))
    assert shared.group(range(4)).summed(RING, 400) == pytest.approx(6 * (0.1 + 2.0))  # four hops at 50 each
    assert shared.group(range(4)).summed(TREE, 400) == pytest.approx(2 * (0.1 + 4.0))  # two messages at once
    assert shared.crossing(*ends, np.full(3, 100.0))[0].tolist() == pytest.approx([1.5, 1.5, 1.5])


def test_faster_links() -> None:
    cluster = Cluster((Node("a", 1.0, latency=0.2, bandwidth=100),), links=(NodeLink("a", "a", 0.4, 10),), shared=50)
    found = cluster.faster(2, 4)
    assert (found.nodes[0].latency, found.nodes[0].bandwidth, found.shared) == (0.05, 200, 100)
    assert found.links == (NodeLink("a", "a", 0.1, 20),)
    assert found.within == cluster.within
    assert Cluster((), within=IntraNodeLink(0.2, 10)).faster(2, 4, within=True).within == IntraNodeLink(0.05, 20)
