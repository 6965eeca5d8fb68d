"""``parallel_param { auto: true }``: measure the ranks of a job briefly, and find the fastest plan for them.

If the forecasts of several plans are close, the ranks try these plans.

A run that resumes from a snapshot uses the plan of the snapshot, if it has the same number of ranks.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import isfinite
from typing import NamedTuple

import torch

from bpt.base.violation import refuse
from bpt.config.plan.chosen import chosen_of, text_of, with_chosen
from bpt.config.plan.run_plan import RunPlan
from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_graph import LayerGraph
from bpt.nn.net_graph import build_graph_of
from bpt.parallel.cluster.cluster import Cluster
from bpt.perf.forecast.drift import PlanAssumptions
from bpt.perf.forecast.forecast import Forecast
from bpt.perf.forecast.net_costs import costs_for
from bpt.perf.forecast.search import SearchResult, search
from bpt.perf.planner.auto import comparisons, expectation
from bpt.perf.planner.plan_report import milliseconds
from bpt.perf.planner.plan_trials import contenders, time_plan
from bpt.perf.speeds.job_cluster import measured_cluster
from bpt.system.comm.agreement import check_same, outcome_of_first
from bpt.system.comm.base import Communicator
from bpt.train.rules.violations import violations_in_step, violations_of_net, violations_of_ranks
from bpt.train.runtime.run_facts import facts_of
from bpt.train.runtime.starting_point import newest_of
from bpt.train.state import read_state

LOG = logging.getLogger("bpt")
SHOWN = 8  # nodes in a log line
CLEARLY = 1.02  # ratio of measured times from which on another plan is taken than that with the best forecast


@dataclass(frozen=True)
class Choice:
    """The plan to train by.

    Attributes:
        plan: the plan.
        basis: the measurements that the plan was chosen by, on the first rank; ``None`` if nothing was measured.
    """

    plan: RunPlan
    basis: PlanAssumptions | None = None


def choose(plan: RunPlan, world: Communicator, device: torch.device, resume: str = "") -> Choice:
    """Return the plan to train by; a collective call.

    The choice keeps all fields that the text sets. Without ``auto: true`` the plan is returned unchanged.

    Args:
        plan: the plan of the solver's text.
        world: all ranks of the job.
        device: the device of this rank.
        resume: a solver state, or "auto", as for ``bind``.

    Raises:
        UserError: the texts are wrong or differ between ranks, or no plan is allowed or fits into memory.
        FileError: the snapshot is missing or damaged.
    """
    if not plan.parallel_param.auto:
        return Choice(plan)
    refuse(plan, violations_in_step(plan))
    if world.size == 1:
        LOG.info("Auto: one process has nothing to choose")
        return Choice(plan)
    graph, tests = build_graph_of(plan.train), tuple(build_graph_of(net) for net in plan.tests)
    check_same(world, facts_of(plan, graph, *tests))
    choose_again = partial(_snapshot_choice, plan, (graph, *tests), resume, world.size)
    previous = outcome_of_first(world, None if world.rank else choose_again)
    if previous is not None:
        chosen = with_chosen(plan, pb.ParallelParameter.FromString(previous))
        LOG.info("Auto: using the plan of the snapshot: %s", text_of(chosen))
        return Choice(chosen)
    LOG.info("Auto: measuring %d ranks", world.size)
    cluster = measured_cluster(plan, graph, device, world)
    basis: list[PlanAssumptions] = []

    def search_here() -> list[_Candidate]:
        costs = costs_for(plan, graph)
        found = search(plan, costs, cluster, tests=tests)
        basis.append(PlanAssumptions(plan, costs, cluster, tests))
        return [_Candidate.of(made, found) for made in contenders(found.best)]

    candidates = outcome_of_first(world, None if world.rank else search_here)
    LOG.info("Auto: measured %s", _speeds_line(cluster))
    plans = [with_chosen(plan, pb.ParallelParameter.FromString(each.chosen)) for each in candidates]
    number = _fastest(plans, candidates, device, world)
    # Trials have compared plans better than forecasts do.
    compared = candidates[number].comparisons if len(plans) == 1 else []
    for line in (text_of(plans[number]), *candidates[number].expectation, *compared):
        LOG.info("Auto: %s", line)
    return Choice(plans[number], replace(basis[0], plan=plans[number]) if basis else None)


class _Candidate(NamedTuple):
    """A plan to choose from: its chosen fields, serialized, and its forecast.

    Attributes:
        expectation: what the forecast says of the plan alone.
        comparisons: its comparisons with the forecasts of simpler plans.
    """

    chosen: bytes
    seconds: float
    expectation: list[str]
    comparisons: list[str]

    @classmethod
    def of(cls, made: Forecast, found: SearchResult) -> _Candidate:
        chosen = chosen_of(made.plan.parallel_param).SerializeToString()
        return cls(chosen, made.seconds, list(expectation(made)), list(comparisons(made, found)))


def _fastest(
    plans: Sequence[RunPlan], candidates: Sequence[_Candidate], device: torch.device, world: Communicator
) -> int:
    """Return the number of the plan with the shortest iterations, by trials if there are several; a collective call."""
    if len(plans) == 1:
        return 0

    def try_plan(number: int) -> float:
        found = time_plan(plans[number], device, world)
        took = f"{milliseconds(found)} ms an iteration" if isfinite(found) else "cannot run here"
        expected = milliseconds(candidates[number].seconds)
        LOG.info("Auto: %s, %s expected: %s", took, expected, text_of(plans[number]))
        return found

    LOG.info("Auto: trying %d plans whose forecasts are close", len(plans))
    seconds = [try_plan(number) for number in range(len(plans))]
    least = min(seconds)
    if seconds[0] > CLEARLY * least and isfinite(seconds[0]):
        seconds[0] = min(seconds[0], try_plan(0))  # other programs may have disturbed the first trial
    return 0 if seconds[0] <= CLEARLY * least else seconds.index(least)


def _snapshot_choice(plan: RunPlan, graphs: Sequence[LayerGraph], resume: str, ranks: int) -> bytes | None:
    """Return the choice in the snapshot, serialized.

    ``None``: the snapshot has no choice, or the choice contradicts the text or the number of ranks.
    """
    path = newest_of(plan) if resume == "auto" else resume
    state = read_state(path) if path else pb.SolverState()
    if not state.HasField("chosen"):
        return None
    if state.ranks != ranks:
        LOG.info("Auto: the snapshot's plan is for %d ranks, but the job has %d", state.ranks, ranks)
        return None
    chosen, (graph, *tests) = with_chosen(plan, state.chosen), graphs
    wrong = [*violations_in_step(chosen), *violations_of_ranks(chosen, ranks)]
    is_other = chosen_of(chosen.parallel_param) != state.chosen  # the text sets other values
    if is_other or wrong or violations_of_net(chosen, graph, tests, ranks):
        LOG.info("Auto: the snapshot's plan contradicts the solver's present text")
        return None
    return state.chosen.SerializeToString()


def _speeds_line(cluster: Cluster) -> str:
    speeds = [f"{node.name}: {node.ranks} x {node.speed:,.4g} samples/s" for node in cluster.nodes[:SHOWN]]
    return f"{', '.join(speeds)}{' …' if len(cluster.nodes) > SHOWN else ''}"
