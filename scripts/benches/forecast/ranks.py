"""A rank of ``scripts/bench forecast``: measures what forecasts are made of, forecasts, and trains by each way."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import quantiles
from typing import Any, NamedTuple

from bpt.apps.commands.choosing import choose
from bpt.config.plan.chosen import text_of
from bpt.config.plan.resolve import read_plan
from bpt.config.plan.run_plan import RunPlan
from bpt.config.proto import bpt_pb2 as pb
from bpt.nn.layers.base import batch_of
from bpt.nn.net_graph import build_graph_of
from bpt.parallel.cluster.cluster import Cluster
from bpt.perf.forecast.arrangement import usual_chunk_size
from bpt.perf.forecast.forecast import forecast
from bpt.perf.forecast.net_costs import NetCosts, costs_for
from bpt.perf.planner.measure import measure
from bpt.perf.speeds.coding import with_coding
from bpt.perf.speeds.job_cluster import measured_cluster
from bpt.perf.speeds.profiling import profile
from bpt.perf.speeds.survey import SurveyLimits
from bpt.system.comm.agreement import outcome_of_first
from bpt.system.comm.base import Communicator
from bpt.system.device import CPU
from bpt.train.solver.solver import Solver
from scripts.benches.forecast.cases import AUTO, CHOSEN, PROFILED
from scripts.benches.forecast.results import Row, append

PASSES = 5  # in which layers are timed
WARM_UP, SETTLING = 2, 12  # iterations before any count; the same of DYNAMIC, which finds its shares in them
FEWEST, MOST = 4, 40  # iterations that count
ROUGH = SurveyLimits(precision=0.05, run=0.1, repeats=3, seconds=1.0)  # of a profile


class Grounds(NamedTuple):
    """What forecasts of a case are made of; the first rank alone has them.

    Attributes:
        fields: what is laid over the solver's text in each way.
        choice: what the planner says besides, if it was asked.
    """

    costs: NetCosts | None
    cluster: Cluster | None
    fields: Sequence[str] = ()
    choice: Sequence[str] = ()


def work(order: dict[str, Any], world: Communicator) -> int:
    """A rank: measures cases, whose rows the first rank adds to a file as they come; how many there are.

    Args:
        order: ``rows``, the file; ``seconds``, to train by each way; the ``turn`` that it is; ``cases``, of each its
            ``part``, ``place``, ``net``, ``solver`` and ``ways``, name → what stands in ``parallel_param``.
    """
    number = 0
    for case in order["cases"]:
        for row in rows_of(case, world, order["seconds"]):
            number += 1
            if world.rank == 0:
                append(Path(order["rows"]), replace(row, turn=order["turn"]))
    return number


def rows_of(case: Mapping[str, Any], world: Communicator, seconds: float) -> Iterator[Row]:
    """The rows of a case, one after the other; a collective call."""
    solver = case["solver"]
    grounds = chosen(solver, world) if case["part"] == AUTO else measured(solver, world)
    done: dict[str, Row] = {}
    for way, inside in case["ways"].items():
        fields = grounds.choice if way == CHOSEN else [f"parallel_param {{ {inside} }}"]
        plan_text = " ".join(" ".join(fields).split())
        if plan_text not in done:  # or else auto has chosen one of the others
            profiled = [with_profile(solver, world)] if PROFILED in way else []
            plan = read_plan(solver, [*fields, *profiled, *grounds.fields])
            grounds = coded(plan, grounds, world)
            predicted, shares = outcome_of_first(world, None if world.rank else partial(expected, plan, grounds))
            seen, laps = train(plan, world, seconds)
            low, middle, high = quantiles(laps, n=4)
            done[plan_text] = Row(
                case["part"], case["place"], case["net"], way, plan_text, predicted, middle, high - low, len(laps),
                shares, seen,
            )  # fmt: skip
        yield replace(done[plan_text], way=way)


def measured(solver: str, world: Communicator) -> Grounds:
    """The times of layers on the first rank, and the ranks as ``bpt doctor --cluster`` sees them."""
    path = f"{solver}.costs"
    outcome_of_first(world, None if world.rank else partial(measure, read_plan(solver), CPU, PASSES, path))
    fields = [f'parallel_param {{ pipeline_param {{ costs: "{path}" }} }}']
    plan = read_plan(solver, fields)
    graph = build_graph_of(plan.train)
    return Grounds(costs_for(plan, graph), measured_cluster(plan, graph, CPU, world), fields)


def coded(plan: RunPlan, grounds: Grounds, world: Communicator) -> Grounds:
    """With what the codec of a way takes, which the solver that was measured does not have."""
    if not plan.parallel_param.compression_param.name:
        return grounds
    assert grounds.cluster
    return grounds._replace(cluster=with_coding(grounds.cluster, plan, build_graph_of(plan.train), world))


def chosen(solver: str, world: Communicator) -> Grounds:
    """What ``auto: true`` sees, and what it chooses."""
    plan = read_plan(solver, ["parallel_param { auto: true }"])
    choice = choose(plan, world, CPU)
    found, basis = choice.plan, choice.basis
    fields = [text_of(found)]
    if found.parallel_param.exchange == pb.ParallelParameter.CGDP:  # so that no search falls into the measurement
        size = usual_chunk_size(build_graph_of(plan.train))
        fields.append(f"parallel_param {{ cgdp_param {{ chunk_size: {size} }} }}")
    return Grounds(basis.costs, basis.cluster, (), fields) if basis else Grounds(None, None, (), fields)


def expected(plan: RunPlan, grounds: Grounds) -> tuple[float, str]:
    """Seconds of an iteration, and shares."""
    assert grounds.costs and grounds.cluster
    made = forecast(plan, grounds.costs, grounds.cluster)
    return made.seconds, " ".join(map(str, made.shares))


def with_profile(solver: str, world: Communicator) -> str:
    """Measure the profile that STATIC wants, unless it is there; what the solver says then."""
    path = f"{solver}.profile"
    if not world.bcast(Path(path).exists()):
        profile(read_plan(solver), CPU, world, path, ROUGH)
    return f'parallel_param {{ balance_param {{ profile: "{path}" }} }}'


def train(plan: RunPlan, world: Communicator, seconds: float) -> tuple[str, list[float]]:
    """Train for about so many seconds: the ranks' shares, and seconds of each iteration; a collective call.

    Iterations are timed on the first rank, without anything between them that would make ranks wait for each other.
    """
    with Solver(plan, world=world) as solver:
        solver.step(SETTLING if plan.parallel_param.balance == pb.ParallelParameter.DYNAMIC else WARM_UP)
        start = time.perf_counter()
        solver.step(1)
        longest = max(world.allgather(time.perf_counter() - start))
        moments = [time.perf_counter()]
        for _ in range(min(max(math.ceil(seconds / longest), FEWEST), MOST)):
            solver.step(1)
            moments.append(time.perf_counter())
        shares = solver.runtime.parallel.batches.shares(batch_of(solver.net.graph))
    laps = [end - begin for begin, end in pairwise(moments)]
    return " ".join(str(share.count) for share in shares), laps
