"""Sums within hosts and between them, with and without a codec: what crosses is what one rank a host would send."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch

from bpt.config.plan.run_plan import CompressionSpec, ParallelSpec, TreeSpec
from bpt.config.proto import bpt_pb2 as pb
from bpt.parallel.exchange import EXCHANGES, Exchange
from bpt.parallel.exchange.codec import CODECS
from bpt.system.comm.base import Communicator
from tests.support.doubles.seen import Seen
from tests.support.doubles.thread_ranks import run_ranks
from tests.support.exchange_groups import Rank

ALL = pb.CompressionParameter.ALL
PAIRS = ["north", "north", "south", "south"]


def coded(exchange: str, codec: str = "BF16", **settings: object) -> Callable[..., Exchange]:
    param = CompressionSpec(**settings)  # type: ignore[arg-type]
    sends = pb.TreeParameter.LIBRARY if exchange == "LIBRARY" else pb.TreeParameter.PAIRWISE
    kind = EXCHANGES["TREE" if exchange == "LIBRARY" else exchange]

    def make(buckets: object, comm_thread: object, device: object) -> Exchange:
        spec = ParallelSpec(compression_param=param, tree_param=TreeSpec(sends))
        return kind(buckets, comm_thread, device, spec, CODECS[codec](param))  # type: ignore[arg-type]

    return make


def summed(
    kind: Callable[..., Exchange], hosts: list[str], messages: int = 2
) -> list[tuple[dict[str, list[float] | None], dict[str, tuple[int, int]]]]:
    """Gradients after two rounds on each rank, and calls and bytes sent of the second, by method."""

    def run(comm: Communicator) -> tuple[dict[str, list[float] | None], dict[str, tuple[int, int]]]:
        rank = Rank(comm, kind)
        found: dict[str, tuple[int, int]] = {}
        seen = Seen(comm)
        for _ in range(2):
            rank.give(a=1.0 + comm.rank, b=10.0 * comm.rank, c=0.5 if comm.rank else None)
            found = {}
            seen.take()
            rank.run()
            for (_, method), traffic in seen.calls().items():
                calls, sent = found.get(method, (0, 0))
                found[method] = calls + traffic.calls, sent + traffic.sent
        gradients = rank.gradients
        rank.exchange.close()
        return gradients, found

    return run_ranks(len(hosts), run, hosts=hosts)


@pytest.mark.parametrize("exchange", ["ALLREDUCE", "RING", "TREE", "LIBRARY", "CGDP"])
@pytest.mark.parametrize("codec", list(CODECS))
def test_the_sums_of_all_hosts(exchange: str, codec: str) -> None:
    """Of numbers that all codecs can tell: small whole ones; all of them; no matrices."""
    gradients = [found for found, _ in summed(coded(exchange, codec, ratio=0.99), PAIRS)]
    expected = {"a": [10.0] * 3, "b": [60.0] * 2, "c": [1.5] * 4}
    if exchange in ("TREE", "LIBRARY"):
        assert gradients == [expected, *[dict.fromkeys("abc")] * 3]
    else:
        assert gradients == [expected] * 4


def test_within_a_host_gradients_are_added_first_and_one_rank_sends_codes() -> None:
    """5 and 4 numbers in two messages. Between hosts 2 bytes each go once, as between 2 ranks alone."""
    together = [traffic for _, traffic in summed(coded("ALLREDUCE"), PAIRS)]
    alone = [traffic for _, traffic in summed(coded("ALLREDUCE"), ["north", "south"])]
    for leads, of_pair, of_two in ((0, 1, 0), (2, 3, 1)):
        coded_calls = {key: together[leads][key] for key in ("Alltoallv", "Allgatherv")}
        assert coded_calls == alone[of_two]
        assert sum(sent for _, sent in coded_calls.values()) == 2 * (5 + 4)
        assert together[of_pair] == {"Reduce": (2, 4 * (5 + 4)), "Bcast": (2, 0)}


def test_without_a_codec_there_is_one_stream_between_hosts() -> None:
    """Of 2 hosts with 2 ranks: a ring of 2 ranks, each of which sends all of 5 and of 4 float32 once."""
    found = summed(EXCHANGES["ALLREDUCE"], PAIRS)
    assert [gradients for gradients, _ in found] == [{"a": [10.0] * 3, "b": [60.0] * 2, "c": [1.5] * 4}] * 4
    for leads, other in ((0, 1), (2, 3)):
        assert found[leads][1]["Allreduce"] == (2, 4 * (5 + 4))
        assert found[other][1] == {"Reduce": (2, 4 * (5 + 4)), "Bcast": (2, 0)}
    apart = summed(EXCHANGES["ALLREDUCE"], ["north", "south"])
    assert [traffic for _, traffic in apart] == [{"Allreduce": (2, 4 * (5 + 4))}] * 2


def test_hosts_of_several_ranks_and_of_one() -> None:
    found = summed(EXCHANGES["ALLREDUCE"], ["north", "south", "north", "north", "east"])
    assert [gradients for gradients, _ in found] == [{"a": [15.0] * 3, "b": [100.0] * 2, "c": [2.0] * 4}] * 5
    assert ["Allreduce" in traffic for _, traffic in found] == [True, True, False, False, True]


def test_on_one_host_nothing_is_coded_unless_all_links_are() -> None:
    plain = summed(EXCHANGES["ALLREDUCE"], ["north"] * 2)
    assert summed(coded("ALLREDUCE"), ["north"] * 2) == plain
    (gradients, traffic), _ = summed(coded("ALLREDUCE", links=ALL), ["north"] * 2)
    assert gradients == plain[0][0]
    assert traffic.keys() == {"Alltoallv", "Allgatherv"}


def test_leaders_share_what_is_left_out_with_the_exchange_that_looks_at_blobs() -> None:
    """Two exchanges of one codec: what the first leaves out, the other sends."""

    def run(comm: Communicator) -> list[list[float] | None]:
        codec = CODECS["TOPK"](CompressionSpec(ratio=0.2))
        spec = ParallelSpec(compression_param=CompressionSpec(ratio=0.2, links=ALL))
        ranks = [Rank(comm, partial(EXCHANGES["RING"], param=spec, codec=codec)) for _ in range(2)]
        found = []
        for rank in ranks:
            rank.give(a=0, b=0, c=0)
            if rank is ranks[0]:
                rank.parameters["c"].grad = torch.tensor([4.0, 3.0, 2.0, 1.0])
            rank.run()
            found.append(rank.gradients["c"])
        return found

    # A piece of two numbers a rank, of which one travels.
    assert run_ranks(2, run) == [[[8.0, 0.0, 4.0, 0.0], [0.0, 6.0, 0.0, 2.0]]] * 2
