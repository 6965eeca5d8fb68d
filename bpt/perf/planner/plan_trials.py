"""Trains some iterations by each of the plans whose forecasts are close, because no forecast is exact.

A forecast does not know what threads that send take from those that compute, or how shares of the batch settle. A trial
is training like any other, but with a learning rate that changes no weights, and without tests and snapshots.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from statistics import median

import torch

from bpt.base.errors import LostRankError, RunError
from bpt.config.plan.run_plan import RunPlan
from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.segments import trained_layers
from bpt.nn.net_graph import build_graph_of
from bpt.perf.forecast.arrangement import CHUNKS
from bpt.perf.forecast.forecast import Forecast
from bpt.perf.speeds.step_benchmark import RATE
from bpt.system.comm.base import Communicator
from bpt.train.runtime.binding import bind
from bpt.train.runtime.runtime import Runtime
from bpt.train.runtime.train_options import TrainOptions

LOG = logging.getLogger("bpt")
CLOSE = 1.3  # ratio of forecasts up to which a plan may be faster than the one that is expected to be the fastest
MOST = 4  # plans that are tried
WARM_UP, SETTLING = 2, 12  # iterations that do not count; the same of DYNAMIC, which finds its shares in them
FEWEST, OFTENEST = 4, 40  # iterations that count
SECONDS = 2.5  # for these
LONGEST = 120.0  # seconds for all trials, as far as forecasts tell


def contenders(best: Sequence[Forecast]) -> list[Forecast]:
    """Return the forecasts of the plans that are worth a trial.

    Args:
        best: forecasts, the best one first, at least one.

    Returns:
        That one first; alone, if all others are clearly slower, or iterations are too long for trials.
    """
    close = [made for made in best if made.seconds <= CLOSE * best[0].seconds][:MOST]
    of_each = best[0].seconds * (SETTLING + FEWEST)
    number = int(LONGEST / of_each) if of_each else MOST
    return close[:number] if number > 1 else close[:1]


def time_plan(plan: RunPlan, device: torch.device, world: Communicator) -> float:
    """Return the median seconds of an iteration by ``plan``, the same on all ranks; a collective call.

    They are infinite if the plan cannot run here, for example because ranks cannot share enough memory.
    """
    options = TrainOptions(device, tries_algorithms=False)
    with _without_log():
        try:
            runtime = bind(_without_effects(plan), None, world, options)
        except LostRankError:
            raise
        except RunError:  # on all ranks; if no other plan is faster, the run itself will raise it again
            return math.inf
        return _time_iterations(runtime, world, plan.parallel_param.balance == pb.ParallelParameter.DYNAMIC)


def _time_iterations(runtime: Runtime, world: Communicator, balances: bool) -> float:
    with runtime:
        runtime.settle()
        runtime.run(SETTLING if balances else WARM_UP)
        longest = max(world.allgather(_laps(runtime, 1)[0]))
        laps = _laps(runtime, min(max(math.ceil(SECONDS / longest), FEWEST), OFTENEST))
    return float(world.bcast(median(laps)))


def _laps(runtime: Runtime, number: int) -> list[float]:
    moments = [time.perf_counter()]
    for _ in range(number):
        runtime.run(1)
        runtime.read_losses()
        moments.append(time.perf_counter())
    return [end - start for start, end in pairwise(moments)]


def _without_effects(plan: RunPlan) -> RunPlan:
    """Return the plan for a trial; chunks are those of the forecast, so that no search for others is measured."""
    plan = plan.measured()
    plan, parallel = replace(plan, optim=replace(plan.optim, base_lr=RATE)), plan.parallel_param
    if parallel.exchange != pb.ParallelParameter.CGDP or parallel.cgdp_param.chunk_size:
        return plan
    size = -(-len(trained_layers(build_graph_of(plan.train))) // CHUNKS)
    return plan.with_parallel(cgdp_param=replace(parallel.cgdp_param, chunk_size=size))


@contextmanager
def _without_log() -> Iterator[None]:
    """Drop what a run logs about its nets and ranks; the run itself will log the same."""
    serious = _Serious()
    LOG.addFilter(serious)
    try:
        yield
    finally:
        LOG.removeFilter(serious)


class _Serious(logging.Filter):
    """Passes errors only."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.levelno >= logging.ERROR
