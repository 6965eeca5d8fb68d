"""What was predicted of the shares and what became of them, in the log; times are given by hand."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from bpt.engine.instructions import Backward, Forward, UpdateWeights
from bpt.parallel.balance import Balance, Static
from bpt.parallel.balance.load_balance import LoadBalanceReport
from bpt.parallel.balance.speed import SpeedFunction
from bpt.system.events.bus import EventBus
from bpt.system.events.event import Event
from tests.support.doubles.thread_ranks import run_ranks
from tests.support.golden_cases import graph_of
from tests.support.parallels import MASTER, PEER, parallel_of
from tests.support.small_solver import NET
from tests.support.spread_runs import FirstRank

# Rank 0 takes 1 ms a sample, rank 1 3 ms; of 8 samples they get 6 and 2.
SPEEDS = [SpeedFunction.fitted([(1, 0.001), (8, 0.008)], None), SpeedFunction.fitted([(1, 0.003), (8, 0.024)], None)]


class Times:
    """Says to the events of a rank what instructions have taken."""

    def __init__(self, events: EventBus) -> None:
        self._events = events

    def passes(self, forward: float, backward: float = 0.0, update: float = 0.0, waiting: float = 0.0) -> None:
        for what, seconds in ((Forward(0), forward), (Backward(0), backward), (UpdateWeights(), update)):
            self._events.emit(Event(what, 100.0, 100.0 + seconds))
        self._events.emit(Event(Forward(0), 50.0, 50.0 + waiting, method="Allreduce", calls=1, sent=8, received=8))


def told(
    ranks: int,
    work: Callable[[LoadBalanceReport, Times, int], None] = lambda seen, times, rank: None,
    text: str = "",
    net: str = NET,
    balance: Balance | None = None,
) -> list[str]:
    """What the first rank says."""
    handler = FirstRank()
    logger = logging.getLogger("bpt")
    level = logger.level

    def run(comm: Any) -> None:
        parallel = parallel_of(comm, text, balance)
        times = Times(comm.events)
        seen = LoadBalanceReport(parallel.batches, graph_of(net))
        work(seen, times, comm.rank)
        parallel.close()

    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        run_ranks(ranks, run)
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
    return handler.lines


@pytest.mark.parametrize(
    ("ranks", "text", "counts"),
    [(1, "", {}), (3, "", {0: 3, 1: 3, 2: 2}), (2, PEER, {0: 4, 1: 4}), (4, MASTER, {0: 4, 2: 4}), (2, MASTER, {})],
)
def test_the_shares_of_those_who_have_samples(ranks: int, text: str, counts: dict[int, int]) -> None:
    expected = [f"Balance: rank {rank} trains {count} of 8 samples" for rank, count in counts.items()]
    assert told(ranks, text=text) == expected


def test_predictions() -> None:
    assert told(2, balance=Static(SPEEDS)) == [
        "Balance: rank 0 trains 6 of 8 samples, predicted 6 ms",
        "Balance: rank 1 trains 2 of 8 samples, predicted 6 ms",
        "Balance: imbalance predicted 0.0% (slowest rank over the mean)",
    ]


def test_what_was_seen() -> None:
    """A mean over 4 iterations, without waiting, without what was before ``start``."""

    def work(seen: LoadBalanceReport, times: Times, rank: int) -> None:
        times.passes(1000.0)
        seen.start(3)
        for _ in range(4):
            # 2 + 3 + 1 - 1 = 5 ms on rank 0, 4 + 3 + 1 - 1 = 7 ms on rank 1
            times.passes(0.004 if rank else 0.002, 0.003, 0.001, waiting=0.001)
        seen.log(7)

    assert told(2, work, balance=Static(SPEEDS))[3:] == [
        "Balance: rank 0 trains 6 of 8 samples, predicted 6 ms, seen 5 ms",
        "Balance: rank 1 trains 2 of 8 samples, predicted 6 ms, seen 7 ms",
        "Balance: imbalance predicted 0.0%, seen 16.7% (slowest rank over the mean)",  # 7 / 6 - 1
    ]
    assert told(2, work)[2:] == [
        "Balance: rank 0 trains 4 of 8 samples, seen 5 ms",
        "Balance: rank 1 trains 4 of 8 samples, seen 7 ms",
        "Balance: imbalance seen 16.7% (slowest rank over the mean)",
    ]


def test_masters_tell_of_masters() -> None:
    def work(seen: LoadBalanceReport, times: Times, rank: int) -> None:
        seen.start(0)
        times.passes({0: 0.001, 2: 0.003}.get(rank, 7.0))
        seen.log(1)

    assert told(4, work, text=MASTER)[2:] == [
        "Balance: rank 0 trains 4 of 8 samples, seen 1 ms",
        "Balance: rank 2 trains 4 of 8 samples, seen 3 ms",
        "Balance: imbalance seen 50.0% (slowest rank over the mean)",
    ]


def test_nothing_is_told_of_no_iterations() -> None:
    def work(seen: LoadBalanceReport, times: Times, rank: int) -> None:
        seen.start(5)
        seen.log(5)

    assert len(told(2, work)) == 2


def test_a_net_without_a_batch_has_nothing_to_tell() -> None:
    net = 'layer { name: "d" type: "DummyData" top: "x" dummy_data_param { shape { } } }'
    assert told(2, net=net) == []
    assert told(2, net=net, balance=Static(SPEEDS)) == []


def test_ranks_that_only_wait() -> None:
    """It is told once, before training."""

    def work(seen: LoadBalanceReport, times: Times, rank: int) -> None:
        seen.start(0)
        seen.log(1)

    lines = told(10, work)
    assert lines[10] == (
        "Balance: 2 of 10 ranks have no samples of a batch of 8 and only wait; start fewer ranks, or enlarge batch_size"
    )
    assert lines.count(lines[10]) == 1


def test_what_was_never_measured_is_a_guess() -> None:
    balance = Static([SpeedFunction.fitted([(1, 0.001), (4, 0.004)], None), SPEEDS[1]])
    lines = told(2, balance=balance)
    assert lines[3:] == [
        "Balance: rank 0: 6 samples are more than the 4 that were measured; their time is an extrapolation"
    ]
