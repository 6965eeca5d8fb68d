"""Shares that make the forecast iteration short: ``balance_param { by: ITERATION }``."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bpt.config.proto import bpt_pb2 as pb
from bpt.parallel.balance.balance_rules import is_by_iteration
from bpt.parallel.balance.batch_shares import fastest
from bpt.parallel.balance.iteration_time import IterationFunction, seconds_left
from bpt.parallel.balance.speed import SpeedFunction
from bpt.perf.forecast.arrangement import Arrangement, ensure_one_each
from bpt.perf.forecast.data_rank_times import DataRankTimes
from bpt.perf.forecast.exchange_costs import ExchangeCosts
from bpt.perf.forecast.rank_links import Floats, RankLinks


def with_balanced_shares(arrangement: Arrangement, links: RankLinks) -> Arrangement:
    """Return ``arrangement`` with the shares that its plan's ``by: ITERATION`` makes; without that as it is."""
    a = arrangement
    if (
        a.given_shares
        or not is_by_iteration(a.plan)
        or a.plan.parallel_param.replica_ranks > 1
        or a.stagings
        or a.size == 1
    ):
        return a
    exchange = ExchangeCosts(a, links)
    order = [segment.index for segment in reversed(a.segments)]
    left = seconds_left([exchange.seconds(segment) for segment in order])
    sizes = (1, a.batch)
    ready = [_ready(replace(a, given_shares=(size,) * a.size), links, order) for size in sizes]
    updates = a.speeds.update.tolist()
    functions = [
        IterationFunction(
            tuple(
                SpeedFunction((0, *sizes), (0.0, *(float(of_size[part, rank]) for of_size in ready)))
                for part in range(len(left))
            ),
            left,
            updates[rank],
        )
        for rank in range(a.size)
    ]
    counts = np.asarray(fastest(functions, a.batch))
    if a.plan.parallel_param.balance == pb.ParallelParameter.DYNAMIC:
        counts = ensure_one_each(counts)
    return replace(a, given_shares=tuple(counts.tolist()))


def _ready(arrangement: Arrangement, links: RankLinks, order: list[int]) -> Floats:
    """Return (segments + 1, ranks) the seconds until each segment's gradients are ready, and until all is computed."""
    a, times = arrangement, DataRankTimes(arrangement, links, np.ones(arrangement.size))
    forward = sum(times.forward(0, segment) for segment in order)
    backward = np.array([times.backward(0, segment) for segment in order])
    found: Floats = forward * a.passes + backward.sum(axis=0) * (a.passes - 1) + np.cumsum(backward, axis=0)
    return np.vstack([found, found[-1:]])
