"""Trains some iterations by each of the plans whose forecasts are close, because no forecast is exact.

A forecast does not know what threads that send take from those that compute, or how shares of the batch settle. A trial
is training like any other, but with a learning rate that changes no weights, and without tests and snapshots.
"""

from __future__ import annotations

import gc
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
from bpt.base.malloc_settings import release_free_memory
from bpt.config.optim_spec import OptimSpec
from bpt.config.plan.run_plan import ParallelSpec, RunPlan
from bpt.config.proto import bpt_pb2 as pb
from bpt.nn.net_graph import build_graph_of
from bpt.perf.forecast.arrangement import usual_chunk_size
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
FEWEST_LAPS, MOST_LAPS = 4, 40  # iterations that count
SECONDS = 2.5  # for these
ITERATIONS = 30  # of a trial whose iterations are long, with those that choose the memory layout
LONGEST = 120.0  # seconds for all trials, as far as forecasts tell
_SCHEDULE = (
    "gamma", "power", "stepsize", "stepvalue", "rampup_interval", "rampup_lr", "warmup_iter", "warmup_start_lr",
    "min_lr", "plateau_winsize", "stagelr", "stageiter", "cosine_param", "onecycle_param", "momentum_policy",
    "max_momentum", "momentum_power", "weight_decay_policy", "weight_decay_power", "max_weight_decay",
)  # fmt: skip


def contenders(best: Sequence[Forecast]) -> list[Forecast]:
    """Return the forecasts of the plans that are worth a trial.

    Args:
        best: forecasts, the best one first, at least one.

    Returns:
        That one first; alone, if all others are clearly slower, or iterations are too long for trials.
    """
    tried, seconds = list(best[:1]), ITERATIONS * best[0].seconds
    for made in best[1:MOST]:
        seconds += ITERATIONS * made.seconds
        if made.seconds <= CLOSE * best[0].seconds and seconds <= LONGEST:
            tried.append(made)
    return tried


def time_plan(plan: RunPlan, device: torch.device, world: Communicator) -> float:
    """Return the median seconds of an iteration by ``plan``, the same on all ranks; a collective call.

    They are infinite if the plan cannot run here, for example because ranks cannot share enough memory.
    """
    flight = world.events.flight
    iteration = flight.iteration if flight else 0
    with _without_log():
        seconds = _time_run(_without_effects(plan), device, world)
    gc.collect()  # a net is in cycles of references
    release_free_memory()
    if flight:
        flight.iteration = iteration
    return seconds


def _time_run(plan: RunPlan, device: torch.device, world: Communicator) -> float:
    runtime: Runtime | None = None
    try:
        runtime = bind(plan, None, world, TrainOptions(device, tries_algorithms=False))
    except LostRankError:
        raise
    except RunError:  # if no other plan can run, the run itself will raise it again
        pass
    has_failed = any(world.allgather(runtime is None))
    if runtime is None or has_failed:
        if runtime is not None:
            runtime.close(failed=True)
        return math.inf
    with runtime:
        runtime.settle()
        runtime.run(SETTLING if plan.parallel_param.balance == pb.ParallelParameter.DYNAMIC else WARM_UP)
        longest = max(world.allgather(_laps(runtime, 1)[0]))
        laps = _laps(runtime, min(max(math.ceil(SECONDS / longest), FEWEST_LAPS), MOST_LAPS))
    return float(world.bcast(median(laps)))


def _laps(runtime: Runtime, number: int) -> list[float]:
    moments = [time.perf_counter()]
    for _ in range(number):
        runtime.run(1)
        runtime.read_losses()
        moments.append(time.perf_counter())
    return [end - start for start, end in pairwise(moments)]


def _without_effects(plan: RunPlan) -> RunPlan:
    """Return the plan for a trial: weights do not change, and a loss that is not finite does not end it.

    Chunks are those of the forecast, so that no search for others is measured.
    """
    plan, default = plan.measured(), OptimSpec()
    given = plan.optim.given - {*_SCHEDULE} | {"base_lr", "lr_policy"}
    constant = {name: getattr(default, name) for name in _SCHEDULE}
    optim = replace(plan.optim, base_lr=RATE, lr_policy="fixed", given=given, **constant)
    plan, parallel = replace(plan, optim=optim, on_nan=pb.SolverParameter.GO_ON), plan.parallel_param
    if parallel.exchange != pb.ParallelParameter.CGDP or parallel.cgdp_param.chunk_size:
        return plan
    size = usual_chunk_size(build_graph_of(plan.train))
    return plan.with_parallel(cgdp_param=replace(ParallelSpec().cgdp_param, chunk_size=size))


@contextmanager
def _without_log() -> Iterator[None]:
    """Drop what a run logs about its nets and ranks; the run itself will log the same."""
    errors_only = _ErrorsOnly()
    LOG.addFilter(errors_only)
    try:
        yield
    finally:
        LOG.removeFilter(errors_only)


class _ErrorsOnly(logging.Filter):
    """Passes errors only."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.levelno >= logging.ERROR
