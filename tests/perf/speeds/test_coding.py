"""What a codec takes: as much work as a sum over so many ranks is for one of them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from bpt.config.proto import bpt_pb2 as pb
from bpt.nn.net_graph import build_graph_of
from bpt.parallel.cluster.cluster import Cluster, Node
from bpt.parallel.exchange.codec.half_codec import Half
from bpt.perf.speeds import coding
from bpt.perf.speeds.coding import with_coding
from bpt.system.comm.base import Communicator
from tests.support.doubles.thread_ranks import run_ranks
from tests.support.small_solver import small_solver

NUMBERS = 307  # parameters of the small net


def coded(folder: Path, settings: str, hosts: str = "aa") -> Cluster:
    plan = small_solver(folder, f"parallel_param {{ compression_param {{ {settings} }} }}")
    cluster = Cluster(tuple(Node(host, 1.0, ranks=hosts.count(host)) for host in dict.fromkeys(hosts)))

    def measure(comm: Communicator) -> Cluster:
        return with_coding(cluster, plan, build_graph_of(plan.train), comm)

    first, *others = run_ranks(len(hosts), measure, hosts=list(hosts))
    assert all(other == first for other in others)
    return first


def test_as_much_is_coded_as_in_a_sum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of two ranks writes half for the other and half of the sum. It reads both again, for what they do not tell,
    the other's half, of 153 numbers, and the whole sum."""
    written, read, encode, decode = [], [], Half.encode, Half.decode

    def noted_encode(self: Half, values: Tensor) -> Tensor:
        written.append(values.numel())
        return encode(self, values)

    def noted_decode(self: Half, code: Tensor, like: Tensor) -> Tensor:
        read.append(like.numel())
        return decode(self, code, like)

    monkeypatch.setattr(Half, "encode", noted_encode)
    monkeypatch.setattr(Half, "decode", noted_decode)
    monkeypatch.setattr(coding, "SECONDS", 0.0)
    (node,) = coded(tmp_path, "codec: BF16 links: ALL").nodes
    times = 2 * 2  # on two ranks, each time after one that does not count
    assert sum(written) == times * NUMBERS
    assert sum(read) == times * (NUMBERS + 153 + NUMBERS)
    ((codec, seconds),) = node.coding
    assert codec == pb.CompressionParameter.BF16
    assert 0 < seconds < 60


@pytest.mark.parametrize("settings", ["codec: TOPK ratio: 0.1", "codec: POWERSGD rank: 1"])
def test_between_hosts(tmp_path: Path, settings: str) -> None:
    a, b = coded(tmp_path, settings, "ab").nodes
    assert len(a.coding) == len(b.coding) == 1
    assert a.coding[0][1] > 0


@pytest.mark.parametrize("settings", ["codec: NONE links: ALL", "codec: BF16"])
def test_where_nothing_is_coded_there_is_nothing_to_measure(tmp_path: Path, settings: str) -> None:
    assert coded(tmp_path, settings).nodes[0].coding == ()


def test_large_nets_are_coded_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At half as many numbers: 2 of 4 filters of 27 numbers and biases; of 3 x 64 weights and 3 biases one row."""
    monkeypatch.setattr(coding, "NUMBERS", NUMBERS / 2)
    graph = build_graph_of(small_solver(tmp_path).train)
    (small,) = coding._messages(graph, torch.float32)
    assert [tuple(tensor.shape) for tensor in small.values()] == [(2, 3, 3, 3), (2,), (1, 64), (1,)]
