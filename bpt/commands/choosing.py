"""``parallel_param { auto: true }``: measures the ranks of a job briefly, and finds the plan that they are to train by.

A run that goes on from a snapshot takes over what was chosen for it, if it has as many ranks.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch

from bpt.comm.agreement import check_same, outcome_of_first
from bpt.comm.base import Communicator
from bpt.forecast.search import Found, search
from bpt.graph.layer_graph import LayerGraph
from bpt.net_graph import build_graph_of
from bpt.plan.chosen import chosen_of, text_of, with_chosen
from bpt.plan.spec import RunPlan
from bpt.plan.violations import violations_in_step, violations_of_net, violations_of_ranks
from bpt.planner.auto import reasons
from bpt.predict.costs import costs_for
from bpt.proto import bpt_pb2 as pb
from bpt.runtime.agreement import facts_of
from bpt.runtime.starting_point import newest_of
from bpt.schedule.cluster import Cluster
from bpt.speeds.job_cluster import measured_cluster
from bpt.state import read_state
from bpt.telemetry.drift import Basis
from bpt.violation import refuse

LOG = logging.getLogger("bpt")
SHOWN = 8  # nodes in a log line


@dataclass(frozen=True)
class Choice:
    """The plan to train by; and what it was chosen by, on the first rank, if something was measured for it."""

    plan: RunPlan
    basis: Basis | None = None


def choose(plan: RunPlan, world: Communicator, device: torch.device, resume: str = "") -> Choice:
    """The plan to train by; a collective call. What the text sets stands. Without ``auto: true``, as it is.

    Args:
        resume: as for ``bind``.

    Raises:
        UserError: the texts are wrong, or not the same on all ranks; or nothing that these ranks could do is allowed,
            or fits into memory.
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
    kept = outcome_of_first(world, None if world.rank else partial(_kept, plan, (graph, *tests), resume, world.size))
    if kept is not None:
        chosen = with_chosen(plan, pb.ParallelParameter.FromString(kept))
        LOG.info("Auto: as the run of the snapshot: %s", text_of(chosen))
        return Choice(chosen)
    LOG.info("Auto: measuring %d ranks", world.size)
    cluster = measured_cluster(plan, graph, device, world)
    basis: list[Basis] = []

    def search_here() -> tuple[bytes, list[str]]:
        costs = costs_for(plan, graph)
        found = search(plan, costs, cluster, tests=tests)
        basis.append(Basis(plan, costs, cluster, tests))
        return chosen_of(found.best[0].plan.parallel_param).SerializeToString(), list(_told(found, cluster))

    serialized, lines = outcome_of_first(world, None if world.rank else search_here)
    for line in lines:
        LOG.info("Auto: %s", line)
    chosen = with_chosen(plan, pb.ParallelParameter.FromString(serialized))
    return Choice(chosen, replace(basis[0], plan=chosen) if basis else None)


def _kept(plan: RunPlan, graphs: Sequence[LayerGraph], resume: str, ranks: int) -> bytes | None:
    """What a snapshot's run has chosen; ``None``: nothing that these ranks can do with what the text sets now."""
    path = newest_of(plan) if resume == "auto" else resume
    state = read_state(path) if path else pb.SolverState()
    if not state.HasField("chosen"):
        return None
    if state.ranks != ranks:
        LOG.info("Auto: the snapshot's plan is for %d ranks, and there are %d", state.ranks, ranks)
        return None
    chosen, (graph, *tests) = with_chosen(plan, state.chosen), graphs
    wrong = [*violations_in_step(chosen), *violations_of_ranks(chosen, ranks)]
    if wrong or violations_of_net(chosen, graph, tests, ranks):
        LOG.info("Auto: the snapshot's plan does not go with what the solver sets now")
        return None
    return state.chosen.SerializeToString()


def _told(found: Found, cluster: Cluster) -> Iterator[str]:
    best = found.best[0]
    speeds = [f"{node.name}: {node.ranks} x {node.speed:,.4g} samples/s" for node in cluster.nodes[:SHOWN]]
    yield f"measured {', '.join(speeds)}{' …' if len(cluster.nodes) > SHOWN else ''}"
    yield text_of(best.plan)
    yield from reasons(best, found)
