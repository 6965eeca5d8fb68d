"""Searches the fastest plan on a cluster, or forecasts the solver's own plan; ``bpt plan --auto`` and ``--dry-run``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from bpt.base.errors import UsageError
from bpt.base.log import columns
from bpt.base.violation import refuse
from bpt.config.plan.chosen import text_of
from bpt.config.plan.run_plan import RunPlan
from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_graph import LayerGraph
from bpt.graph.layer_spec import Shape
from bpt.nn.net_graph import build_graph_of
from bpt.parallel.cluster.cluster import Cluster, Node
from bpt.parallel.cluster.cluster_file import ClusterSource
from bpt.parallel.pipeline.devices import NOMINAL_LINK
from bpt.perf.forecast.forecast import Forecast, forecast
from bpt.perf.forecast.net_costs import NetCosts, costs_for
from bpt.perf.forecast.search import PlanSearch, SearchResult
from bpt.perf.planner.plan_report import milliseconds
from bpt.perf.simulate.simulation_net import without_data
from bpt.train.rules.violations import violations_in_step, violations_of_net, violations_of_ranks

_MIB = 2**20
LINKS = ((10.0, "ten times as fast"), (0.1, "a tenth as fast"))
SEARCHED_AGAIN = 64  # ranks up to which the search is repeated with other links
SHOWN = 16  # ranks with a line in the report


@dataclass(frozen=True)
class PlanningTask:
    """The net and the cluster of a plan; ``described``: whether a file describes the cluster."""

    plan: RunPlan
    costs: NetCosts
    cluster: Cluster
    described: bool

    @property
    def graph(self) -> LayerGraph:
        """The training net."""
        return self.costs.graph


def planning_task(plan: RunPlan, cluster: str, shape: Shape = ()) -> PlanningTask:
    """Return the task for a plan and a cluster.

    Args:
        cluster: a file, or a number of equal ranks; empty: as many as the solver's own plan needs.
        shape: the shape of a sample, which replaces the data set.

    Raises:
        UsageError: the number is below 1, or there is none.
        PrototxtError, FileError: the net, its costs or the cluster are wrong.
    """
    refuse(plan, violations_in_step(plan))
    graph = build_graph_of(without_data(plan.train, shape) if shape else plan.train)
    costs = costs_for(plan, graph)
    if cluster.lstrip("+-").isdigit() or not cluster:
        ranks = int(cluster or plan.parallel_param.layout(1).size)
        if ranks < 1 or (not cluster and ranks < 2):
            raise UsageError("give a cluster: --cluster FILE, or --cluster N for N equal ranks")
        link = NOMINAL_LINK
        node = Node("rank", costs.nominal_speed(), latency=link.latency / 2, bandwidth=link.bandwidth)
        return PlanningTask(plan, costs, Cluster((node,) * ranks), False)
    return PlanningTask(plan, costs, ClusterSource(cluster).cluster(costs.flops, max(plan.random_seed, 0)), True)


def auto_lines(what: PlanningTask, top: int) -> tuple[SearchResult, list[str]]:
    """Search the fastest plan; return the result and the lines of its report.

    Raises:
        UserError: there is no plan.
    """
    search = PlanSearch(what.plan, what.costs)
    found = search.on(what.cluster, top)
    return found, list(_auto_lines(what, search, found))


def dry_run(what: PlanningTask) -> Forecast:
    """Return the forecast of the solver's own plan on all ranks.

    Raises:
        PrototxtError: these ranks cannot run it.
    """
    ranks = len(what.cluster.hosts)
    refuse(what.plan, violations_of_ranks(what.plan, ranks))
    refuse(what.plan, violations_of_net(what.plan, what.graph, (), ranks))
    return forecast(what.plan, what.costs, what.cluster, bars=True)


def _auto_lines(what: PlanningTask, search: PlanSearch, found: SearchResult) -> Iterator[str]:
    best = found.best[0]
    yield from _title(what)
    yield (
        f"{found.candidates} plans are allowed, {found.played} were simulated; the others can only be slower"
        f"{f'; {found.short} do not fit into memory' if found.short else ''}"
    )
    yield ""
    yield text_of(best.plan)
    yield ""
    yield from expectation(best)
    yield from comparisons(best, found)
    yield ""
    yield from columns(list(_table(found)), left=2)
    yield ""
    if len(what.cluster.hosts) <= SEARCHED_AGAIN:
        yield from _other_links(what, search, best)
    if not what.described:
        yield "No file describes the ranks: they count as equal, on links of 10 Gbit/s. --cluster FILE describes them."


def _title(what: PlanningTask) -> Iterator[str]:
    ranks, nodes = len(what.cluster.hosts), len(what.cluster.nodes)
    speeds = [node.speed for node in what.cluster.nodes]
    spread = f", from {min(speeds):,.4g} to {max(speeds):,.4g} samples/s" if max(speeds) > min(speeds) else ""
    yield (
        f"{what.graph.name or 'the net'} on {ranks} rank{'s' * (ranks != 1)} of {nodes} node{'s' * (nodes != 1)}"
        f"{spread}; batch {what.costs.batch}, {what.graph.num_parameters:,} parameters"
    )
    yield f"costs: {f'measured on {what.costs.measured}' if what.costs.measured else 'floating-point operations'}"


def expectation(best: Forecast) -> Iterator[str]:
    """Yield the parts of an iteration's time, and its messages and memory."""
    least, most = best.computing.min(), best.computing.max()
    yield (
        f"An iteration is expected to take {milliseconds(best.seconds)} ms: ranks compute {milliseconds(least)} to "
        f"{milliseconds(most)} ms, {milliseconds(best.exposed)} ms of exchange are not hidden. "
        f"Bottleneck: {best.bottleneck}"
    )
    yield (
        f"It sends {best.between / 1e6:,.4g} MB between nodes and {best.within / 1e6:,.4g} MB within them, and a rank "
        f"holds {best.peak_memory.max() / _MIB:,.4g} MiB at most"
        + (f" of {best.memory_limits.min() / _MIB:,.4g}" if np.isfinite(best.memory_limits.min()) else "")
    )


def comparisons(best: Forecast, found: SearchResult) -> Iterator[str]:
    """Yield comparisons with the forecasts of simpler plans."""
    if found.plain is not None and found.plain is not best:
        yield f"Plain data parallelism: {milliseconds(found.plain.seconds)} ms, {_times_as_long(found.plain, best)}"
    # With batches of replicas, one process would train fewer samples.
    if found.alone < best.seconds and best.plan.parallel_param.batch_scope != pb.ParallelParameter.REPLICA:
        yield f"The fastest rank alone would take {milliseconds(found.alone)} ms: start one process"


def _table(found: SearchResult) -> Iterator[tuple[str, ...]]:
    yield "", "plan", "ms", "more", "bubble", "MiB", "bottleneck"
    best = found.best[0]
    for place, each in enumerate(found.best, 1):
        more = "" if each is best else f"{each.seconds / best.seconds - 1:.1%}"
        bubble, held = f"{each.bubble:.1%}", f"{each.peak_memory.max() / _MIB:,.4g}"
        name = text_of(each.plan).removeprefix("parallel_param { ").removesuffix("}").strip() or "plain"
        yield str(place), name, milliseconds(each.seconds), more, bubble, held, each.bottleneck


def _times_as_long(other: Forecast, best: Forecast) -> str:
    return f"{other.seconds / best.seconds:.2f} times as long"


def _other_links(what: PlanningTask, search: PlanSearch, best: Forecast) -> Iterator[str]:
    """Yield the best plans for faster and for slower links."""
    if len(what.cluster.nodes) == 1 or not np.isfinite([node.bandwidth for node in what.cluster.nodes]).all():
        return
    for factor, words in LINKS:
        other = search.on(what.cluster.faster(factor), 1).best[0]
        same = text_of(other.plan) == text_of(best.plan)
        choice = "the same plan" if same else text_of(other.plan)
        yield f"With links {words}: {choice}, {milliseconds(other.seconds)} ms"


def dry_lines(what: PlanningTask, made: Forecast) -> Iterator[str]:
    """Yield the forecast of one plan, rank by rank."""
    yield from _title(what)
    yield text_of(made.plan)
    yield ""
    yield (
        f"An iteration is expected to take {milliseconds(made.seconds)} ms, {milliseconds(made.exposed)} ms of it "
        f"exchange that is not hidden; bubble {made.bubble:.1%}; bottleneck: {made.bottleneck}"
    )
    yield f"It sends {made.between / 1e6:,.4g} MB between nodes and {made.within / 1e6:,.4g} MB within them"
    yield ""
    rows = [("rank", "node", "computes ms", "holds MiB", "of MiB")]
    for rank, host in enumerate(what.cluster.hosts[:SHOWN]):
        room = f"{made.memory_limits[rank] / _MIB:,.5g}" if np.isfinite(made.memory_limits[rank]) else ""
        held = f"{made.peak_memory[rank] / _MIB:,.4g}"
        rows.append((str(rank), what.cluster.nodes[host].name, milliseconds(made.computing[rank]), held, room))
    yield from columns(rows, left=2)
    if len(what.cluster.hosts) > SHOWN:
        yield f"... and {len(what.cluster.hosts) - SHOWN} more"
    shares = [f"{share}" for share in made.shares[:SHOWN]]
    yield f"Shares of the batch: {', '.join(shares)}{' …' if len(made.shares) > SHOWN else ''}"
    if not made.fits:
        short = int(np.argmax(made.peak_memory > made.memory_limits))
        yield f"Warning: the memory of rank {short} is too small for this plan"
