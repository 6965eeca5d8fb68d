"""Measures the speeds of a run's ranks and writes them to a file for ``balance: STATIC``; ``bpt time --profile``."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch

from bpt.base.atomic import check_place
from bpt.base.errors import UserError
from bpt.base.log import log_lines
from bpt.base.version import VERSION
from bpt.base.violation import refuse
from bpt.config.plan.run_plan import ParallelSpec, RunPlan
from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_graph import LayerGraph
from bpt.graph.segments import Segment
from bpt.nn.layers.base import batch_of
from bpt.nn.net_graph import build_graph_of
from bpt.parallel.balance import Uniform
from bpt.parallel.balance.balance_rules import is_by_iteration
from bpt.parallel.balance.batch_shares import lines
from bpt.parallel.balance.divisible_batches import divisible_batch, violations_measured
from bpt.parallel.balance.iteration_time import exchange_seconds
from bpt.parallel.balance.load_balance import division_of
from bpt.parallel.balance.profile import Profile, static_from, write_profile
from bpt.parallel.balance.rank_facts import facts
from bpt.perf.speeds.step_benchmark import StepBenchmark
from bpt.perf.speeds.survey import SurveyLimits, measure_speed
from bpt.system.comm.agreement import check_same, outcome_of_first
from bpt.system.comm.base import Communicator
from bpt.system.events.totals import Totals
from bpt.train.rules.violations import violations_in_step
from bpt.train.runtime.binding import bind
from bpt.train.runtime.rank_grid import make_grid
from bpt.train.runtime.run_facts import facts_of
from bpt.train.runtime.train_options import TrainOptions

LOG = logging.getLogger("bpt")

WARM_UP = 2  # iterations before exchanges are measured
REPEATS = 8  # iterations in which exchanges and segments are measured


def profile(
    plan: RunPlan, device: torch.device, world: Communicator, path: str, limits: SurveyLimits | None = None
) -> Profile:
    """Measure the speed of each rank, log it, and write it to the file at ``path``; a collective call.

    Every rank runs the whole training net without an exchange. It runs no tests, and changes no weights.

    Raises:
        PrototxtError: the net is wrong.
        FileError: no file can be written at ``path``.
        WriteError: the file could not be written.
    """
    outcome_of_first(world, None if world.rank else partial(check_place, path))
    plan = plan.training_only()
    uniform = plan.with_parallel(
        balance=pb.ParallelParameter.UNIFORM
    )  # STATIC would need the profile that this call makes
    refuse(uniform, violations_in_step(uniform))
    graph = build_graph_of(plan.train)
    check_same(world, facts_of(plan, graph))
    refuse(plan, violations_measured(graph))
    grid = make_grid(uniform, graph, world)
    divisible_batch(plan, graph)
    work = StepBenchmark(
        graph,
        plan,
        device,
        ranks=world.size,
        on_device=world.allgather(_memory_of(device, world)).count(_memory_of(device, world)),
        agree=lambda seconds: float(max(world.allgather(seconds))),
    )
    division = division_of(uniform, graph, grid)
    batch = whole_batch(graph, plan.parallel_param, world.size)
    LOG.info("Profile: measuring %d ranks, for batches of %d samples in all", world.size, batch)
    try:
        speed = measure_speed(work, plan.engine, batch, world, limits, division)
        exchanges: tuple[float, ...] = ()
        if is_by_iteration(plan) and world.size > 1:
            segments, exchanges = _measure_exchanges(uniform, device, world)
            sizes = sorted(speed.points)
            chosen = {sizes[0], sizes[len(sizes) // 2], sizes[-1]}
            world.Barrier()
            speed = replace(speed, segments={size: _of_segments(work, size, segments) for size in sorted(chosen)})
    finally:
        work.close()
    speeds = tuple(world.allgather(speed))
    result = Profile(facts(plan, graph, device, world), speeds, batch, graph.name, VERSION, exchanges)
    _log_prospects(result)
    if world.rank == 0:
        write_profile(result, path)
        LOG.info("Profile: written to %s", path)
    return result


def _of_segments(work: StepBenchmark, size: int, segments: Sequence[Segment]) -> tuple[float, ...]:
    work.resize(size)
    return work.segment_seconds(segments, REPEATS)


def _measure_exchanges(
    plan: RunPlan, device: torch.device, world: Communicator
) -> tuple[tuple[Segment, ...], tuple[float, ...]]:
    """Return the segments into which training cuts the net, and the seconds of their exchanges; a collective call."""
    with bind(plan.measured(), None, world, TrainOptions(device)) as runtime:
        runtime.settle()
        runtime.run(WARM_UP)
        with world.events.into(Totals()) as totals:
            runtime.run(REPEATS)
        segments = tuple(runtime.nets.train.operator.segments)
        own = exchange_seconds(totals.take(), len(segments))
    least = map(min, zip(*world.allgather(own), strict=True))
    return segments, tuple(seconds / REPEATS for seconds in least)


def whole_batch(graph: LayerGraph, parallel: ParallelSpec, ranks: int) -> int:
    """Return the samples of a batch of the training net ``graph`` for all ranks together."""
    if parallel.batch_scope == pb.ParallelParameter.REPLICA:
        return batch_of(graph) * parallel.layout(ranks).replicas
    return batch_of(graph)


def _log_prospects(result: Profile) -> None:
    balance = static_from(result)
    ranks = len(result.speeds)
    for rank, speed in enumerate(result.speeds):
        LOG.info("Profile: rank %d: %d samples fit into memory", rank, speed.cap)
    try:
        shares = balance.shares(result.batch, ranks)
    except UserError as error:
        LOG.warning("Profile: %s", error)
        return
    log_lines(LOG, lines(shares, balance.predicted_seconds(shares)))
    even = balance.predicted_seconds(Uniform().shares(result.batch, ranks))
    best = max(balance.predicted_seconds(shares))
    LOG.info(
        "Balance: without the exchange an iteration takes %.4g ms with STATIC, %.4g ms with UNIFORM (%.3g times)",
        best * 1e3,
        max(even) * 1e3,
        max(even) / best,
    )


def _memory_of(device: torch.device, world: Communicator) -> tuple[str, str]:
    """Return a name of the memory in which this rank computes: its host, and its GPU if it has one."""
    if device.type == "cuda":
        return world.host, str(getattr(torch.cuda.get_device_properties(device), "uuid", device.index))
    return world.host, "main"
