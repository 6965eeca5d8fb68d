"""Parallel: which ranks sum which gradients, and agree on what else a net holds, worked out by hand."""

from __future__ import annotations

import pytest
import torch

from bpt.graph.segments import cut
from bpt.nn.net import Net
from bpt.parallel.exchange import Exchange
from bpt.train.runtime import parallel as module
from bpt.train.runtime.cutting import last_segments
from bpt.train.runtime.parallel import Parallel
from tests.support.golden_cases import graph_of
from tests.support.parallels import MASTER, NET, PEER, Given, named, net_of, on_ranks

SHARED = """
layer { name: "in" type: "DummyData" top: "x" dummy_data_param { shape { dim: 8 dim: 6 } } }
layer { name: "a" type: "InnerProduct" bottom: "x" top: "a" param { name: "w" } param { }
  inner_product_param { num_output: 6 } }
layer { name: "b" type: "InnerProduct" bottom: "a" top: "b" inner_product_param { num_output: 6 } }
layer { name: "c" type: "InnerProduct" bottom: "b" top: "c" param { name: "w" } param { }
  inner_product_param { num_output: 6 } }
"""


def test_a_gradient_is_finished_by_the_first_segment_that_uses_it() -> None:
    def look(parallel: Parallel) -> dict[int, int]:
        graph = graph_of(SHARED)
        cuts = cut(graph, [0, 2, 3])
        # Params: 0 a's weight, 1 a's bias, 2 and 3 b's, 4 c's weight, which is a's, 5 c's bias.
        return last_segments(graph, cuts)

    assert on_ranks(1, look) == [{0: 0, 1: 0, 2: 1, 3: 1, 5: 2}]


def buckets(parallel: Parallel, overlap: bool = True) -> list[list[tuple[int, list[str]]]]:
    """For each segment of the net its buckets: number of ranks that agree, and parameters."""
    net = net_of(parallel)
    names = {id(value): name for name, value in named(net).items()}
    exchange = parallel.exchange(net, parallel.segments(net.graph, overlap))
    return [[(b.comm.size, [names[id(p)] for p in b.parameters]) for b in group] for group in exchange.buckets]


def test_what_is_exchanged_with_whom(monkeypatch: pytest.MonkeyPatch) -> None:
    """Statistics of BatchNorm and what has lr_mult: 0 never travel, nor what one rank alone holds."""
    monkeypatch.setattr(module, "SEGMENT", 25)
    first, fc, last = (["first/0", "first/1"], ["fc/0", "fc/1"], ["last/0", "last/1"])
    assert on_ranks(1, buckets) == [[[]]]
    assert on_ranks(2, buckets) == [[[], [(2, first)], [(2, [*fc, *last])]]] * 2
    # Segments: data | first bn | fc relu | last | fixed | loss.
    assert on_ranks(2, buckets, PEER) == [[[], [(2, first)], [], [], [], []]] * 2
    assert on_ranks(4, buckets, PEER) == [[[], [(4, first)], [(2, fc)], [(2, last)], [], []]] * 4
    # data | first bn | fc | relu | last | fixed | loss
    assert on_ranks(2, buckets, MASTER) == [[[]] * 7] * 2
    master = [[], [(2, first)], [], [], [], [], []]
    slave = [[], [], [(2, fc)], [], [(2, last)], [], []]
    assert on_ranks(4, buckets, MASTER) == [master, slave, master, slave]


def summed(parallel: Parallel) -> dict[str, float]:
    """Gradients after an exchange to which rank r brings 10ʳ everywhere."""
    net = net_of(parallel)
    segments = parallel.segments(net.graph)
    exchange = parallel.exchange(net, segments)
    for value in named(net).values():
        if value.requires_grad:
            value.grad = torch.full_like(value, 10.0**parallel.grid.world.rank)
    for segment in reversed(range(len(segments))):
        exchange.start(segment)
    exchange.wait()
    return {name: torch.unique(value.grad).item() for name, value in named(net).items() if value.grad is not None}


def test_sums_over_those_who_hold_the_same() -> None:
    whole, slices = ("first/0", "first/1"), ("fc/0", "fc/1", "last/0", "last/1")
    assert on_ranks(3, summed) == [dict.fromkeys((*whole, *slices), 111.0)] * 3
    even, odd = dict.fromkeys(slices, 101.0), dict.fromkeys(slices, 1010.0)
    everybody = dict.fromkeys(whole, 1111.0)
    assert on_ranks(4, summed, PEER) == [everybody | even, everybody | odd] * 2
    master = dict.fromkeys(whole, 101.0)
    assert on_ranks(4, summed, MASTER) == [master, odd] * 2
    # Reduced to the first of those who hold the same.
    tree = on_ranks(4, summed, PEER + " exchange: TREE")
    assert tree == [everybody | even, odd, {}, {}]


# Agreement on what no exchange touches


def fill(net: Net, number: float) -> None:
    with torch.no_grad():
        for value in named(net).values():
            value.fill_(number)


def contents(net: Net) -> dict[str, float]:
    """Each parameter's only value."""
    return {name: torch.unique(value.detach()).item() for name, value in named(net).items()}


STATISTICS = {"bn/0", "bn/1", "bn/2"}


def agreed(parallel: Parallel, everything: bool = False) -> dict[str, float]:
    net = net_of(parallel)
    fill(net, parallel.grid.world.rank)
    parallel.agree(net, everything)
    return contents(net)


def test_what_passes_leave_is_that_of_the_first() -> None:
    for rank, values in enumerate(on_ranks(3, agreed)):
        assert values == {name: 0 if name in {*STATISTICS, "fixed/0"} else rank for name in values}


def test_everything_is_that_of_the_first() -> None:
    assert on_ranks(3, lambda parallel: set(agreed(parallel, everything=True).values())) == [{0.0}] * 3
    # Slices come from the first rank that holds the same ones.
    for rank, values in enumerate(on_ranks(4, lambda parallel: agreed(parallel, everything=True), PEER)):
        assert values == {name: rank % 2 if name.startswith(("fc", "last", "fixed")) else 0 for name in values}
    for rank, values in enumerate(on_ranks(4, lambda parallel: agreed(parallel, everything=True), MASTER)):
        assert set(values.values()) == {rank % 2}


def test_a_rank_without_samples_has_no_statistics_to_give() -> None:
    for values in on_ranks(3, agreed, balance=Given(0, 3, 5)):
        assert {name: value for name, value in values.items() if name in STATISTICS} == dict.fromkeys(STATISTICS, 1)
    for values in on_ranks(4, agreed, PEER, Given(0, 0, 0, 8)):
        assert {name: value for name, value in values.items() if name in STATISTICS} == dict.fromkeys(STATISTICS, 3)


@pytest.mark.parametrize(("exchange", "trained"), [("ALLREDUCE", [0, 1, 2]), ("TREE", [0, 0, 0])])
def test_before_a_test_all_nets_are_equal(exchange: str, trained: list[int]) -> None:
    """Under ALLREDUCE what is trained is equal anyway, and not sent."""

    def look(parallel: Parallel) -> dict[str, float]:
        net = net_of(parallel)
        made = parallel.exchange(net, parallel.segments(net.graph))
        fill(net, parallel.grid.world.rank)
        parallel.before_test(net, made)
        return contents(net)

    for rank, values in enumerate(on_ranks(3, look, f"exchange: {exchange}")):
        assert values == {name: 0 if name in {*STATISTICS, "fixed/0"} else trained[rank] for name in values}


# Sums over the ranks of a replica


@pytest.mark.parametrize("text", ["", PEER, MASTER])
def test_each_parameter_is_counted_once_in_a_replica(text: str) -> None:
    def look(parallel: Parallel) -> tuple[int, int]:
        net = net_of(parallel)
        counted = parallel.counted(net)
        own = sum(value.numel() for value in named(net).values() if id(value) in counted)
        assert parallel.sum_over_replica(own) == 28 + 9 + 25 + 12 + 6
        return own, len(counted)

    expected = {
        # fc: 3 and 2 of 5 outputs, each with 4 + 1 numbers; last: 1 and 1 with 5 + 1; fixed: 2 and 1 with 2.
        PEER: [(28 + 9 + 15 + 6 + 4, 10), (10 + 6 + 2, 5)] * 2,
        MASTER: [(28 + 9, 5), (25 + 12 + 6, 5)] * 2,
        "": [(28 + 9 + 25 + 12 + 6, 10)] * 4,
    }
    assert on_ranks(4, look, text) == expected[text]


def test_sums_over_the_shards() -> None:
    def total(parallel: Parallel) -> float:
        return parallel.sum_over_replica(10.0**parallel.grid.world.rank)

    assert on_ranks(2, total) == [1, 10]
    assert on_ranks(4, total, PEER) == [11, 11, 1100, 1100]


FROZEN = "param { lr_mult: 0 } param { lr_mult: 0 } "
WITHOUT_MASTERS_OWN = NET.replace("parallel_param { mode: DATA }", FROZEN + "parallel_param { mode: DATA }")


@pytest.mark.parametrize(
    ("text", "net", "expected"),
    [
        ("", NET, [True] * 4),
        (PEER, NET, [True] * 4),
        ("exchange: TREE", NET, [True, False, False, False]),
        # The second peer updates its slices.
        ("exchange: TREE " + PEER, NET, [True, True, False, False]),
        ("exchange: TREE " + MASTER, NET, [True, True, False, False]),
        # A master that trains nothing takes part in its slaves' sums; where it has none to wait for, in nobody's.
        ("exchange: TREE " + MASTER, WITHOUT_MASTERS_OWN, [True, True, True, True]),
    ],
)
def test_the_ranks_of_a_replica_know_alike_whether_they_update(text: str, net: str, expected: list[bool]) -> None:
    def look(parallel: Parallel) -> bool:
        own = net_of(parallel, net)
        exchange: Exchange = parallel.exchange(own, parallel.segments(own.graph))
        return parallel.updates(own, exchange.frozen())

    assert on_ranks(4, look, text) == expected
