"""IterationFunction and the times of which it is made, by hand; seconds."""

from __future__ import annotations

import pytest

from bpt.engine.instructions import Backward, ExchangeGradients, Forward, UpdateWeights
from bpt.parallel.balance.batch_shares import Static
from bpt.parallel.balance.dynamic import Dynamic
from bpt.parallel.balance.iteration_time import IterationFunction, exchange_seconds, ready_seconds, seconds_left
from bpt.parallel.balance.speed import SpeedFunction
from bpt.system.events.totals import Key, Traffic


def line(fixed: float, each: float) -> SpeedFunction:
    """The time of a fixed part and of each sample, of 1 to 100 samples."""
    return SpeedFunction((0, 1, 100), (0.0, fixed + each, fixed + 100 * each))


LEFT = seconds_left([80, 2])  # the gradients of the last layers are many
FAST = IterationFunction((line(10, 0.4), line(10, 1), line(10, 1)), LEFT, update=5)
SLOW = IterationFunction((line(20, 1.6), line(20, 4), line(20, 4)), LEFT, update=10)


def test_the_latest_exchange_ends_an_iteration() -> None:
    """Of 10 samples the first gradients are there after 14 s, and 82 s of exchange follow; of 200 all after 210, and 2
    follow."""
    assert LEFT == (82, 2, 0)
    assert FAST.seconds(10) == 5 + 14 + 82
    assert FAST.seconds(200) == 5 + 210 + 2


def test_shares_that_make_the_iteration_short() -> None:
    """83 and 17 samples take 98 s of computing each. But the slow rank's first gradients then come 9 s too late."""
    computing = [line(15, 1), line(30, 4)]
    assert [share.count for share in Static(computing).shares(100, 2)] == [83, 17]
    assert (FAST.seconds(83), SLOW.seconds(17)) == pytest.approx((130.2, 139.2))
    assert [share.count for share in Static(computing, by=[FAST, SLOW]).shares(100, 2)] == [88, 12]
    assert (FAST.seconds(88), SLOW.seconds(12)) == pytest.approx((132.2, 131.2))


def test_times_of_the_instructions() -> None:
    """Two passes; a call within a forward pass is no computing. The last segment's gradients are ready first."""
    totals = {
        Key(Forward(0).step): Traffic(seconds=4.0),
        Key(Forward(1).step): Traffic(seconds=2.0),
        Key(Forward(1).step, method="Allreduce"): Traffic(seconds=1.0),
        Key(Backward(1).step): Traffic(seconds=6.0),
        Key(Backward(0).step): Traffic(seconds=8.0),
        Key(UpdateWeights().step): Traffic(seconds=3.0),
        Key(ExchangeGradients(1).step): Traffic(seconds=0.5),
        Key(ExchangeGradients(1).step, "a", "Allreduce"): Traffic(seconds=5.0),
        Key(ExchangeGradients(1).step, "b", "Allreduce"): Traffic(seconds=2.0),
        Key(ExchangeGradients(0).step, "c", "Allreduce"): Traffic(seconds=1.0),
    }
    assert ready_seconds(totals, 2, 2) == ([5 + 7 + 3, 5 + 7 + 7, 5 + 7 + 7], 3)
    assert exchange_seconds(totals, 2) == [7, 1]


def test_dynamic_follows_the_iteration() -> None:
    """Both compute 50 s, of which the second's update takes 20. The first one has its first gradients early, the second
    one at the end, and 30 s of exchange follow: they take 50 and 80 s. A sample more or less is worth 10 and 6."""
    balance = Dynamic(2)
    ready = [[5.0, 50.0, 50.0, 0.0], [30.0, 30.0, 30.0, 20.0]]
    assert balance.follow(10, [50, 50], [1000, 1000], ready, [30, 0])
    assert [share.count for share in balance.shares(10, 2)] == [7, 3]
    assert balance.predicted_seconds(balance.shares(10, 2)) == pytest.approx((70, 68))
