"""Parallel: who has which samples, and how nets are cut and split, worked out by hand."""

from __future__ import annotations

import pytest
import torch

from bpt.base.errors import UserError
from bpt.config.proto import bpt_pb2 as pb
from bpt.engine.compute import LibraryCompute
from bpt.graph.part import WHOLE, BlobSlice
from bpt.graph.share import Share
from bpt.parallel.balance import Static, Uniform
from bpt.parallel.balance.speed import SpeedFunction
from bpt.parallel.model_parallel.master_slave import MasterSlave
from bpt.parallel.model_parallel.peer import Peer
from bpt.parallel.task_dag import TaskDagCompute
from bpt.system.comm.base import Communicator
from bpt.system.device import CPU
from bpt.train.runtime import cutting
from bpt.train.runtime import parallel as module
from bpt.train.runtime.parallel import Parallel
from tests.support.doubles.thread_ranks import run_ranks
from tests.support.golden_cases import graph_of
from tests.support.parallels import MASTER, NET, PEER, Given, net_of, on_ranks, parallel_of


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", [(0, 3), (3, 3), (6, 2), (8, 2)]),
        (PEER, [(0, 3), (3, 3), (6, 2), (8, 2)]),
        (MASTER, [(0, 5), (0, 5), (5, 5), (5, 5)]),  # a slave counts as its master
    ],
)
def test_who_has_which_samples(text: str, expected: list[tuple[int, int]]) -> None:
    def share(parallel: Parallel) -> tuple[int, int]:
        context = parallel.batches.context(0)
        own = context.split(10)
        assert own.total == 10
        return own.start, own.count

    assert on_ranks(4, share, text) == expected


@pytest.mark.parametrize(
    ("text", "outputs", "sharing"),
    [("", [True] * 4, 4), (PEER, [True] * 4, 4), (MASTER, [True, False, True, False], 2)],
)
def test_who_runs_the_other_layers(text: str, outputs: list[bool], sharing: int) -> None:
    def look(parallel: Parallel) -> tuple[bool, int, int]:
        context = parallel.batches.context(0)
        return parallel.batches.has_outputs, parallel.batches.samples.size, context.ranks

    assert on_ranks(4, look, text) == [(outputs[rank], sharing, sharing) for rank in range(4)]


@pytest.mark.parametrize("text", ["", MASTER.replace("2", "1"), "batch_scope: REPLICA"])
def test_a_rank_that_is_alone_has_the_whole_batch(text: str) -> None:
    def look(parallel: Parallel) -> None:
        context = parallel.batches.context(0)
        assert parallel.is_alone
        assert parallel.batches.has_outputs
        assert context.split(10) == Share(0, 10, 10)
        assert context.ranks == 1
        assert parallel.parts(graph_of(NET)) == (WHOLE,)

    on_ranks(1, look, text)


def test_replica_scope_multiplies_the_batch() -> None:
    """By replicas, not by ranks: 10 samples a replica, of which its peers have 5 each."""

    def share(parallel: Parallel) -> Share:
        assert parallel.batches.batch_factor == 2
        context = parallel.batches.context(0)
        return context.split(10)

    assert on_ranks(4, share, "batch_scope: REPLICA " + PEER) == [Share(start, 5, 20) for start in (0, 5, 10, 15)]


def test_a_test_has_the_batch_of_the_text() -> None:
    """As in Caffe, whatever training makes of it."""

    def shares(parallel: Parallel) -> tuple[Share, Share]:
        train, test = parallel.batches.context(0), parallel.batches.context(0, pb.TEST)
        return train.split(10), test.split(10)

    expected = [(Share(0, 10, 20), Share(0, 5, 10)), (Share(10, 10, 20), Share(5, 5, 10))]
    assert on_ranks(2, shares, "batch_scope: REPLICA") == expected


def test_a_test_has_no_limits_of_memory() -> None:
    """Those of training were measured with gradients and blobs that a test does not keep."""
    even = SpeedFunction.fitted([(1, 1.0)], 3)

    def shares(parallel: Parallel) -> list[int]:
        assert [share.count for share in parallel.batches.shares(6)] == [3, 3]
        with pytest.raises(UserError, match="a batch of 10 samples does not fit into memory"):
            parallel.batches.shares(10)
        net = net_of(parallel, NET.replace("dim: 8", "dim: 6"))
        parallel.parameters.agree(net, everything=True)  # of a test net, too
        return [share.count for share in parallel.batches.shares(10, pb.TEST)]

    assert on_ranks(2, shares, balance=Static([even, even])) == [[5, 5]] * 2


@pytest.mark.parametrize(("text", "expected"), [("", [0, 1, 2, 3]), (PEER, [0, 1, 2, 3]), (MASTER, [0, 2])])
def test_numbers_of_the_ranks_with_samples(text: str, expected: list[int]) -> None:
    assert on_ranks(4, lambda parallel: list(parallel.batches.ranks_with_samples), text) == [expected] * 4


def test_the_batch_factor_can_be_given() -> None:
    """One process that is to train what many did."""

    def run(comm: Communicator) -> Share:
        return parallel_of(comm, batch_factor=3).batches.shares(10)[0]

    assert run_ranks(1, run) == [Share(0, 30, 30)]


def test_shares_are_worked_out_once_a_batch_size() -> None:
    asked = []

    class Counting(Uniform):
        def shares(self, total: int, ranks: int) -> tuple[Share, ...]:
            asked.append(total)
            return super().shares(total, ranks)

    def look(parallel: Parallel) -> None:
        assert parallel.batches.shares(8) is parallel.batches.shares(8)
        parallel.batches.shares(6)

    on_ranks(1, look, balance=Counting())
    assert asked == [8, 6]


def test_peers_know_the_rows_of_their_group() -> None:
    """Of 8 samples the four ranks have 4, 1, 0 and 3; the first two are a replica, and the last two."""

    def rows(parallel: Parallel) -> list[int]:
        net = net_of(parallel)
        operator = parallel.operator(net, parallel.segments(net.graph), CPU)
        assert isinstance(operator.collectives, Peer)
        return [share.count for share in operator.collectives._shares_of(8)]

    assert on_ranks(4, rows, PEER, Given(4, 1, 0, 3)) == [[4, 1], [4, 1], [0, 3], [0, 3]]


@pytest.mark.parametrize(("text", "expected"), [("", [10] * 4), (PEER, [10] * 4), (MASTER, [4, 6, 4, 6])])
def test_totals_are_over_those_who_share_the_batch(text: str, expected: list[int]) -> None:
    """Ranks bring 1, 2, 3 and 4. Masters sum up with masters; a slave's call, which no layer makes, with slaves."""

    def total(parallel: Parallel) -> list[float]:
        context = parallel.batches.context(0, graph=graph_of(NET))
        mine = torch.tensor([[1.0, 0.0], [5.0, 0.0]]) * (parallel.grid.world.rank + 1)
        strided = mine.t()[0]  # two elements that do not lie side by side
        assert not strided.is_contiguous()
        return context.total(strided, "bn").tolist()

    assert on_ranks(4, total, text) == [[n, 5 * n] for n in expected]


def test_layers_learn_of_the_settings() -> None:
    def look(parallel: Parallel) -> tuple[bool, bool]:
        context = parallel.batches.context(0)
        return context.sync_batch_norm, context.unweighted

    assert on_ranks(1, look) == [(False, False)]
    assert on_ranks(1, look, "sync_batch_norm: true") == [(True, False)]
    assert on_ranks(1, look, "balance_param { normalizer: UNIFORM }") == [(False, True)]


# Cuts, parts, operators


def starts(parallel: Parallel, overlap: bool) -> list[int]:
    return [segment.start for segment in parallel.segments(graph_of(NET), overlap)]


# 0 data, 1 first, 2 bn, 3 fc, 4 relu, 5 last, 6 fixed, 7 loss
@pytest.mark.parametrize(
    ("ranks", "text", "overlap", "expected"),
    [
        (1, "", False, [0]),
        (1, "", True, [0]),
        (2, "", False, [0]),
        # From the end: "last" has 12 parameters that are trained, "fc" 25, "first" 28.
        (2, "", True, [0, 1, 3]),
        (2, PEER, False, [0, 3, 5, 6, 7]),  # fc + relu, last, fixed
        (2, PEER, True, [0, 1, 3, 5, 6, 7]),
        (2, MASTER, False, [0, 3, 4, 5, 6, 7]),
        (2, MASTER, True, [0, 1, 3, 4, 5, 6, 7]),
    ],
)
def test_where_a_net_is_cut(
    ranks: int, text: str, overlap: bool, expected: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SEGMENT", 25)
    assert on_ranks(ranks, lambda parallel: starts(parallel, overlap), text) == [expected] * ranks


def test_a_block_of_peers_is_not_cut_for_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted from the end, enough parameters would be there at the ReLU, if that had some."""
    monkeypatch.setattr(cutting, "starts_by_size", lambda graph, size: [0, 4])
    assert on_ranks(2, lambda parallel: starts(parallel, True), PEER) == [[0, 3, 5, 6, 7]] * 2
    assert on_ranks(2, lambda parallel: starts(parallel, True)) == [[0, 4]] * 2


def test_parts_of_the_shards() -> None:
    def parts(parallel: Parallel) -> object:
        peers = parallel.parts(graph_of(NET))
        return [[part.slices[index] for index in sorted(part.slices)] for part in peers]

    # fc: 3 and 2 of 5 outputs, last: 1 and 1, fixed: 2 and 1; weight and bias alike.
    first = [BlobSlice(0, 0, 3)] * 2 + [BlobSlice(0, 0, 1)] * 2 + [BlobSlice(0, 0, 2)]
    second = [BlobSlice(0, 3, 5)] * 2 + [BlobSlice(0, 1, 2)] * 2 + [BlobSlice(0, 2, 3)]
    assert on_ranks(2, parts, PEER) == [[first, second]] * 2


@pytest.mark.parametrize(
    ("text", "compute", "collectives"),
    [
        ("", LibraryCompute, type(None)),
        (PEER, LibraryCompute, Peer),
        (MASTER, LibraryCompute, MasterSlave),
        ("inner_param { engine: TASK_DAG }", TaskDagCompute, type(None)),
        ("inner_param { engine: AUTO }", TaskDagCompute, type(None)),
        (f"{PEER} inner_param {{ engine: AUTO }}", TaskDagCompute, Peer),
    ],
)
def test_what_an_operator_is_composed_of(text: str, compute: type, collectives: type) -> None:
    def operator(parallel: Parallel) -> tuple[type, type]:
        net = net_of(parallel)
        found = parallel.operator(net, parallel.segments(net.graph), CPU)
        return type(found.compute), type(found.collectives)

    assert on_ranks(2, operator, text) == [(compute, collectives)] * 2


# Words


def described(ranks: int, text: str) -> list[str]:
    return on_ranks(ranks, lambda parallel: parallel.described, text)


def test_in_words() -> None:
    assert described(4, "")[0].endswith("; ALLREDUCE, balance UNIFORM")
    peers = described(4, "exchange: TREE " + PEER)
    assert peers == [peers[0]] * 4
    assert peers[0] == ("4 ranks = 2 replicas × 2 shards; TREE, balance UNIFORM, model-parallel layers PEER")
