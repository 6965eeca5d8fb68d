"""Cluster files: what they come to, and what is refused, with its place."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from bpt.base.errors import PrototxtError
from bpt.parallel.cluster.cluster import Cluster, IntraNodeLink, Node, NodeLink, ServerNode
from bpt.parallel.cluster.cluster_file import ClusterSource, cluster_text
from tests.support.paths import PROTOTXT

AB = 'node { name: "a" gflops: 1 count: 2 }\nnode { name: "b" gflops: 1 }\n'
CLUSTERS = sorted((PROTOTXT / "clusters").glob("*.prototxt"))


def source(tmp_path: Path, text: str) -> ClusterSource:
    path = tmp_path / "c.prototxt"
    path.write_text(text)
    return ClusterSource(str(path))


def test_a_file_in_its_units(tmp_path: Path) -> None:
    """Mbit/s are 125,000 bytes a second; 3 GFLOPS at 6 MFLOP a sample are 500 samples a second."""
    text = """
    node {
      name: "a" count: 2 samples_per_second: 100 noise: 0.1 frequency: 2.4 latency: 0.01 bandwidth: 8
      change { at: 9 factor: 2 } change { at: 3 factor: 0.5 } fails: 20 warm_up: 0.5
      coding { codec: TOPK seconds: 2e-8 } border: 0.25 border_overhead: 0.5 interference: 3e-9
    }
    node { gflops: 3 }
    server { latency: 0.02 bandwidth: 80 update_rate: 5 }
    """
    a = Node("a", 100, 0.1, 2.4, 0.01, 1e6, ((3, 0.5), (9, 2)), 20, warm_up=0.5, coding=((3, 2e-8),), border=0.25)
    a = replace(a, interference=3e-9, border_overhead=0.5)
    expected = Cluster((a, a, Node("kind1", 500)), ServerNode(0.02, 1e7, 5e6), colocated=True)
    assert source(tmp_path, text).cluster(6e6, 0, colocated=True) == expected


def test_links_by_pair_and_class(tmp_path: Path) -> None:
    text = f"""{AB}
    link {{ one: "a" other: "a" bandwidth: 8000 }}
    link {{ one: "a" other: "b" latency: 0.001 }}
    shared_bandwidth: 80 waking: 0.002 allreduce_efficiency: 0.5 busy_waking: 0.004 busy_efficiency: 0.25
    """
    found = source(tmp_path, text).cluster(1e9, 0)
    assert found.links == (NodeLink("a", "a", 0.0, 1e9), NodeLink("a", "b", 0.001, math.inf))
    assert (found.shared, found.waking, found.efficiency) == (1e7, 0.002, 0.5)
    assert (found.busy_waking, found.busy_efficiency) == (0.004, 0.25)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    node = Node(
        "a", 41.5, 0.125, latency=5e-5, bandwidth=1e6, overhead=0.25, update=0.125, ranks=2, cores=4, memory=2**30
    )
    node = replace(node, interference=5e-10, border_overhead=0.5)
    nodes = replace(node, coding=((1, 1e-8), (4, 2.5e-9))), Node("b", 10.0)
    links = (NodeLink("a", "b", 0.5, 1e7),)
    within = IntraNodeLink(1e-6, 1e9)
    cluster = Cluster(nodes, within=within, links=links, shared=1e8, waking=2e-3, efficiency=0.8, busy_waking=5e-3)
    cluster = replace(cluster, busy_efficiency=0.75)
    assert source(tmp_path, cluster_text(cluster)).cluster(0, 0) == cluster
    assert source(tmp_path, cluster_text(Cluster(nodes[1:]))).cluster(0, 0) == Cluster(nodes[1:])


def test_zero_is_without_limit(tmp_path: Path) -> None:
    text = "node { samples_per_second: 1 bandwidth: 0 } server { bandwidth: 0 update_rate: 0 }"
    cluster = source(tmp_path, text).cluster(0, 0)
    assert cluster == Cluster((Node("kind0", 1),))
    assert cluster.server.update_rate == cluster.nodes[0].bandwidth == cluster.nodes[0].fails == math.inf


def test_memory_of_each_node(tmp_path: Path) -> None:
    """In MiB; without one, or at 0, there is no limit."""
    text = "node { gflops: 1 count: 2 memory: 1.5 } node { gflops: 1 } node { gflops: 1 memory: 0 }"
    found = [node.memory for node in source(tmp_path, text).cluster(1.0, 0).nodes]
    assert found == [1_572_864, 1_572_864, math.inf, math.inf]


def test_spread_is_drawn_from_the_seed_for_each_kind(tmp_path: Path) -> None:
    kind = "node { count: 3 samples_per_second: 1 spread: 0.3 }"
    drawn = source(tmp_path, kind * 2)
    first = [node.speed for node in drawn.cluster(0, 1).nodes]
    assert len(set(first)) == 6
    assert [node.speed for node in drawn.cluster(0, 1).nodes] == first
    assert [node.speed for node in drawn.cluster(0, 2).nodes] != first
    more = source(tmp_path, kind + "node { count: 4 samples_per_second: 1 spread: 0.3 }").cluster(0, 1).nodes
    assert [node.speed for node in more][:6] == first


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("node { gflops: 1 } busy_efficiency: 1.5", "1:20", "busy_efficiency is 1.5; it must be at most 1"),
        ("", "1:1", "a cluster has at least one node { samples_per_second: … }"),
        ("server { }", "1:1", "a cluster has at least one node"),
        ("node { }", "1:1", "a node has either samples_per_second or gflops; neither is set"),
        ("node { samples_per_second: 1\n gflops: 2 }", "2:2", "a node has either samples_per_second or gflops; both"),
        ("node { samples_per_second: 0 }", "1:8", "samples_per_second is 0; it must be finite and above 0"),
        ("node { samples_per_second: -1 }", "1:8", "samples_per_second is -1; it must be finite and above 0"),
        ("node { gflops: inf }", "1:8", "gflops is inf; it must be finite and above 0"),
        ("node { gflops: 1 count: 0 }", "1:18", "count is 0; it must be at least 1"),
        ("node { gflops: 1 frequency: 0 }", "1:18", "frequency is 0; it must be finite and above 0"),
        ("node { gflops: 1 spread: -1 }", "1:18", "spread is -1; it must be finite and at least 0"),
        ("node { gflops: 1 noise: nan }", "1:18", "noise is nan; it must be finite and at least 0"),
        ("node { gflops: 1 latency: -1 }", "1:18", "latency is -1; it must be finite and at least 0"),
        ("node { gflops: 1 bandwidth: -1 }", "1:18", "bandwidth is -1; it must be finite and at least 0"),
        ("node { gflops: 1 memory: -1 }", "1:18", "memory is -1; it must be finite and at least 0"),
        ("node { gflops: 1 fails: -1 }", "1:18", "fails is -1; it must be finite and at least 0"),
        ("node { gflops: 1 warm_up: -1 }", "1:18", "warm_up is -1; it must be finite and at least 0"),
        ("node { gflops: 1 coding { seconds: 1 } }", "1:18", "coding needs codec: BF16, FP16, TOPK or POWERSGD"),
        ("node { gflops: 1 coding { codec: BF16 } }", "1:18", "seconds is 0; it must be finite and above 0"),
        ("node { gflops: 1 change { } }", "1:18", "a change needs at: the seconds after the start"),
        ("node { gflops: 1 change { at: 1 factor: 0 } }", "1:33", "factor is 0; it must be finite and above 0"),
        ("node { gflops: 1 change { at: -1 } }", "1:27", "at is -1; it must be finite and at least 0"),
        ("node { gflops: 1 }\nserver { update_rate: -1 }", "2:10", "update_rate is -1; it must be finite and at"),
        ("node { gflops: 1 } shared_bandwidth: -1", "1:20", "shared_bandwidth is -1; it must be finite and at least 0"),
        (AB + 'link { one: "a" }', "3:1", "a link needs other: a node's name"),
        (AB + 'link { one: "a" other: "c" }', "3:17", 'other: no node has the name "c"'),
        (AB + 'link { one: "b" other: "b" }', "3:1", 'there is one node "b"; what lies between its ranks is within'),
        (
            AB + 'link { one: "a" other: "b" }\nlink { one: "b" other: "a" }',
            "4:1",
            'the link between "b" and "a" is given',
        ),
        (AB + 'link { one: "a" other: "b" latency: -1 }', "3:28", "latency is -1; it must be finite and at least 0"),
        ("node { gflops: 1 } node { speed: 1 }", "1:27", 'NodeParameter has no field "speed"'),
    ],
)
def test_what_is_refused(text: str, place: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(PrototxtError) as caught:
        source(tmp_path, text)
    assert str(caught.value).startswith(f"{tmp_path}/c.prototxt:{place}: {message}")


def test_gflops_need_a_net_that_computes(tmp_path: Path) -> None:
    with pytest.raises(PrototxtError, match=r"c\.prototxt:1:8: gflops: the net has no operations to count"):
        source(tmp_path, "node { gflops: 1 }").cluster(0, 0)


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(PrototxtError, match="nope: no such file"):
        ClusterSource("nope")


@pytest.mark.parametrize("path", CLUSTERS, ids=lambda path: path.stem)
def test_the_examples(path: Path) -> None:
    nodes = len(ClusterSource(str(path)).cluster(45e6, 0).nodes)
    known = {"two_unlike": 2, "three_unlike": 3, "eight_unlike": 8, "thirty_nodes": 30, "ten_thousand": 10_000}
    assert nodes == known[path.stem]
