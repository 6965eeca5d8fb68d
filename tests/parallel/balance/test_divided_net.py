"""Stages and shards: times by hand from those with the whole net."""

from __future__ import annotations

import itertools

import pytest

from bpt.config.plan.replica_layout import ReplicaLayout
from bpt.graph.share import Share
from bpt.parallel.balance import Static
from bpt.parallel.balance.batch_shares import fastest
from bpt.parallel.balance.divided_net import Division, peer_seconds, pipelined, sharing
from bpt.parallel.balance.speed import SpeedFunction


def linear(seconds: float, cap: int | None = None) -> SpeedFunction:
    """So many seconds a sample, measured up to 16."""
    return SpeedFunction.fitted([(1, seconds), (16, 16 * seconds)], cap)


def test_who_has_a_share() -> None:
    assert Division(ReplicaLayout((1, 1, 1))).share_ranks == [[0], [1], [2]]
    assert Division(ReplicaLayout((1, 1), 2)).share_ranks == [[0], [1], [2], [3]]
    assert Division(ReplicaLayout((1, 1), 2), masters=True).share_ranks == [[0], [2]]
    both = Division(ReplicaLayout((2, 2), 2), [(0.5, 0.5)], [(0.0, 0.0)])
    assert both.share_ranks == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert both.group == 2
    assert [both.share_of(rank) for rank in range(8)] == [0, 1, 0, 1, 2, 3, 2, 3]
    masters = Division(ReplicaLayout((2, 2), 2), [(0.5, 0.5)], [(0.0, 0.4)], masters=True)
    assert [masters.share_of(rank) for rank in range(8)] == [0, 0, 0, 0, 1, 1, 1, 1]


def test_pipelines_are_as_fast_as_their_slowest_stage() -> None:
    """Of two pipelines the first has a rank twice as fast behind one that does three quarters of the work."""
    fast, slow = linear(1.0, 100), linear(2.0, 100)
    division = Division(ReplicaLayout((2, 2)), [(0.75, 0.25)], [(0.0, 0.0)])
    one, other = division.functions([fast, slow, slow, fast])
    assert (one.seconds(10), other.seconds(10)) == (7.5, 15.0)  # max(0.75 · 10, 0.25 · 20), max(0.75 · 20, 0.25 · 10)
    assert one.cap == other.cap == 133  # 100 / 0.75


def test_a_master_waits_for_its_slaves() -> None:
    """Split layers are 0.4 of the work: master 0.6 · 1 s, the slower of two slaves 0.2 · 5 s."""
    (replica,) = Division(ReplicaLayout((1,), 3), [(1.0,)], [(0.4,)], masters=True).functions(
        [linear(1), linear(2), linear(5)]
    )
    assert replica.seconds(10) == pytest.approx(6 + 10)
    # In a pipeline only the stage that has split layers waits: 0.5 · 10; 0.1 · 10 + 0.4 · 20.
    (function,) = Division(ReplicaLayout((2,), 2), [(0.5, 0.5)], [(0.0, 0.4)], masters=True).functions(
        [linear(1), linear(9), linear(1), linear(2)]
    )
    assert function.seconds(10) == pytest.approx(9)
    assert pipelined([linear(1)], (1.0,)).seconds(3) == 3


def test_peers_do_slices_for_the_samples_of_all() -> None:
    """Half of the work is split over two ranks of 1 and 3 s a sample, which have 6 and 2 of 8 samples."""
    ranks = [linear(1), linear(3)]
    assert peer_seconds(ranks, [6, 2], 0.5) == [3 + 2, 3 + 6]
    assert peer_seconds(ranks, [6, 2], 0.5, is_synchronous=True) == [3 + 6, 3 + 6]
    balance = Static(ranks, group=2, split=0.5)
    shares = balance.shares(8, 2)
    assert [share.count for share in shares] == [
        6,
        2,
    ]  # whatever the split layers take, these finish their own together
    assert balance.predicted_seconds(shares) == (5.0, 9.0)
    assert balance.remarks((Share(0, 17, 18), Share(17, 1, 18)))[0].startswith(
        "rank 0: 17 samples are more than the 16"
    )


def test_replicas_of_peers_against_all_divisions() -> None:
    """Two pairs, of 1 and 1, and 1 and 4 s a sample; of 12 samples the second pair gets less than by its own speed."""
    pairs = [linear(1), linear(1)], [linear(1), linear(4)]
    split = 0.6

    def slowest(counts: tuple[int, ...]) -> float:
        """Own samples, then slices of the pair's samples; each phase as long as its slowest."""
        times = []
        for pair, own in zip(pairs, (counts[:2], counts[2:]), strict=True):
            whole = max(0.4 * f.seconds(count) for f, count in zip(pair, own, strict=True))
            times.append(whole + max(0.6 * f.seconds(sum(own)) / 2 for f in pair))
        return max(times)

    best = min(slowest(each) for each in itertools.product(range(13), repeat=4) if sum(each) == 12)
    found = [share.count for share in Static([*pairs[0], *pairs[1]], group=2, split=split).shares(12, 4)]
    assert slowest(tuple(found)) <= 1.05 * best  # the function of a pair is straight between measured sizes
    assert sum(found[2:]) < sum(fastest([*pairs[0], *pairs[1]], 12)[2:])
    assert sharing(pairs[0], split, fastest).seconds(12) == pytest.approx(0.4 * 6 + 0.3 * 12)


def test_memory_of_peers() -> None:
    assert sharing([linear(1, 5), linear(1, 7)], 0.5, fastest).cap == 12
    assert sharing([linear(1, 5), linear(1)], 0.5, fastest).cap is None
    found = Static([linear(1, 3), linear(1, 3), linear(9), linear(9)], group=2, split=0.5).shares(20, 4)
    assert [share.count for share in found][:2] == [3, 3]
