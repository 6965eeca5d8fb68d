"""The search for a plan: it forecasts all plans for a net on a cluster that the rules of strategies allow.

All candidates are synchronous and give the loss curve of one process, up to rounding. Delayed gradients and the outer
layer give other curves, so only the user chooses them. The search keeps the settings of the text. It does not simulate
a candidate whose lower bound is above the times found. The first bound is the larger of the work divided by all speeds
and the time of the messages. When the stages are known, ``lower_bound`` gives a second bound.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod

import numpy as np

from bpt.base.errors import PrototxtError, UserError
from bpt.base.violation import Violation
from bpt.config.plan.replica_layout import ReplicaLayout
from bpt.config.plan.run_plan import RunPlan
from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_graph import LayerGraph
from bpt.graph.staging import Staging
from bpt.nn.layers import LAYERS
from bpt.parallel.balance.divisible_batches import gathering, is_dividable
from bpt.parallel.cluster.cluster import Cluster
from bpt.parallel.pipeline.stage_placement import stage_kinds
from bpt.perf.forecast.arrangement import Arrangement
from bpt.perf.forecast.forecast import Forecast, Iteration
from bpt.perf.forecast.net_costs import NetCosts
from bpt.perf.forecast.rank_links import Floats, RankLinks
from bpt.train.rules.violations import violations_in_step, violations_of_net, violations_of_ranks

_Parallel, _Pipeline = pb.ParallelParameter, pb.PipelineParameter
EXCHANGES = (_Parallel.ALLREDUCE, _Parallel.CGDP, _Parallel.RING, _Parallel.TREE)
UPDATES = (_Parallel.REPLICATED, _Parallel.SHARDED)
WORTH_DIVIDING = 1.1  # ratio of times above which a divided update is chosen: forecasts of its messages are less true
SCHEDULES = (_Pipeline.GPIPE, _Pipeline.ONE_F_ONE_B)
MICRO_BATCHES = (2, 4, 8, 16)
DEEPEST, WIDEST = 8, 8  # largest numbers of stages and of shards
UNLIKE = 1.05  # ratio of speeds above which shares are fitted to them
MOST_LAYOUTS = 32  # of replicas that are not alike, from which on none is tried
MANY = 256  # ranks from which a pipeline is tried with only two numbers of micro-batches


@dataclass(frozen=True)
class SearchResult:
    """The result of a search.

    Attributes:
        best: forecasts, the fastest first, at least one; those with a divided update count as 10 % slower.
        plain: plain data parallelism; ``None``: it is not allowed, or does not fit into memory.
        candidates: the number of plans that the rules allow.
        played: the number of these plans that were simulated.
        short: the number of simulated plans that do not fit into memory.
        alone: seconds of an iteration on the fastest rank alone, even if its memory is too small.
    """

    best: tuple[Forecast, ...]
    plain: Forecast | None
    candidates: int
    played: int
    short: int
    alone: float


def search(
    plan: RunPlan, costs: NetCosts, cluster: Cluster, top: int = 5, tests: Sequence[LayerGraph] = ()
) -> SearchResult:
    """Return the ``top`` plans with the fastest iterations on all ranks of ``cluster``.

    Args:
        tests: the graphs of the test nets.

    Raises:
        UserError: no plan is allowed, or none fits into memory; the message says why.
    """
    return PlanSearch(plan, costs, tests).on(cluster, top)


class PlanSearch:
    """A search on several clusters.

    The allowed plans do not depend on links, and stages do not depend on speeds, so the search finds both only once.

    Args:
        plan, costs, tests: as in ``search``.
    """

    def __init__(self, plan: RunPlan, costs: NetCosts, tests: Sequence[LayerGraph] = ()) -> None:
        self._plan, self._costs, self._tests = plan, costs, tests
        self._stagings: dict[tuple[object, ...], tuple[Staging, ...] | None] = {}
        self._allowed: dict[tuple[tuple[int, ...], tuple[float, ...]], list[RunPlan]] = {}

    def on(self, cluster: Cluster, top: int = 5) -> SearchResult:
        """Return the ``top`` plans on a cluster, as ``search`` does."""
        here = _ClusterSearch(self._plan, self._costs, cluster, self._tests, self._stagings)
        ranks = cluster.hosts, tuple(node.speed for node in cluster.nodes)
        if ranks not in self._allowed:
            self._allowed[ranks] = list(here.allowed())
        return here.run(self._allowed[ranks], top)


class _ClusterSearch:
    """A search on one cluster."""

    def __init__(
        self,
        plan: RunPlan,
        costs: NetCosts,
        cluster: Cluster,
        tests: Sequence[LayerGraph],
        stagings: dict[tuple[object, ...], tuple[Staging, ...] | None],
    ) -> None:
        self._plan = replace(plan, asked_precision=plan.precision)  # otherwise each candidate would read the net's text
        self._costs, self._cluster, self._tests, self._stagings = costs, cluster, tests, stagings
        self._ranks = len(cluster.hosts)
        self._speeds = np.array(cluster.of_ranks(lambda node: node.speed))
        self._alone = self._speeds * np.array(
            cluster.of_ranks(lambda node: node.ranks_per_core)
        )  # while no other rank computes
        gradients = sum(cost.trained for cost in costs.layers) * plan.precision.wire.itemsize
        self._gradients = gradients / plan.precision.master.itemsize
        self._everybody = RankLinks(cluster).group(range(self._ranks))

    def run(self, allowed: Sequence[RunPlan], top: int) -> SearchResult:
        """Simulate the allowed plans, in the order of their lower bounds.

        The first bound of a plan does not use its stages. The second one uses everything except the order of their
        work. A plan is simulated if both bounds are below the times found.
        """
        if not allowed:
            raise UserError(self._why_none())
        queue: list[tuple[float, int, Iteration | None]] = [
            (_weighed(each, self._bound(each)), number, None) for number, each in enumerate(allowed)
        ]
        heapq.heapify(queue)
        best: list[tuple[float, int, Forecast]] = []
        plain: Forecast | None = None
        played = short = 0
        while queue:
            bound, number, iteration = heapq.heappop(queue)
            is_plain = _is_plain(allowed[number])
            # Of equally fast plans the first candidate wins, in whatever order they are simulated.
            if len(best) >= top and (bound, number) > best[-1][:2] and not (is_plain and plain is None):
                continue
            if iteration is None:
                if iteration := self._iteration(allowed[number]):
                    nearer = _weighed(allowed[number], iteration.lower_bound)
                    heapq.heappush(queue, (max(bound, nearer), number, iteration))
                continue
            made = iteration.forecast()
            played += 1
            if not made.fits:
                short += 1
                continue
            plain = made if is_plain else plain
            best = sorted([*best, (_weighed(made.plan, made.seconds), number, made)], key=lambda each: each[:2])[:top]
        if not best:
            raise UserError(
                f"no plan fits into the memory of {self._ranks} ranks ({played} plans were simulated); use smaller "
                "batches, more ranks, or nodes with more memory"
            )
        alone = self._batch / float(self._speeds.max()) * max(self._plan.optim.iter_size, 1)
        return SearchResult(tuple(made for _, _, made in best), plain, len(allowed), played, short, alone)

    @property
    def _batch(self) -> int:
        return self._costs.batch

    def allowed(self) -> Iterator[RunPlan]:
        """Yield the candidates that the strategies' own rules allow; they do not depend on links."""
        return (candidate for candidate in self._candidates() if self._violation(candidate) is None)

    def _violation(self, plan: RunPlan) -> Violation | None:
        """Return the first reason why a plan is not allowed."""
        ranks, graph = self._ranks, self._costs.graph
        found = violations_in_step(plan) or violations_of_ranks(plan, ranks)
        return next(iter(found or violations_of_net(plan, graph, self._tests, ranks)), None)

    def _why_none(self) -> str:
        violation = self._violation(self._plan)
        why = f": {violation.message}" if violation else ""
        return f"the solver's settings allow no plan on {self._ranks} ranks{why}"

    def _candidates(self) -> Iterator[RunPlan]:
        """Yield a candidate for each combination of the settings that the text leaves open."""
        plan = self._plan
        # If each replica has its own batch, the curve depends on the number of replicas, so that does not change.
        fixed = plan.parallel_param.batch_scope == _Parallel.REPLICA
        deepest, widest = (1, 1) if fixed else (DEEPEST, WIDEST)
        for layout in self._unlike_layouts(deepest):
            for cut in self._with_schedules(plan.with_layout(layout)):
                yield from self._with_exchanges(cut, layout.replicas, 1)
        if plan.parallel_param.replica:
            return
        for stages in self._either("num_stages", _divisors(self._ranks, deepest)):
            for shards in self._either("num_shards", _divisors(self._ranks // stages, widest)):
                if self._ranks % (stages * shards):
                    continue
                replicas = self._ranks // (stages * shards)
                own = plan.with_parallel(num_stages=stages, num_shards=shards)
                for cut in self._with_schedules(own) if stages > 1 else [own]:
                    yield from self._with_exchanges(cut, replicas, shards)

    def _unlike_layouts(self, deepest: int) -> Iterator[ReplicaLayout]:
        """Yield the layouts in which consecutive ranks of like speed form replicas of other depths than the others."""
        parallel = self._plan.parallel_param
        if parallel.replica:
            yield parallel.layout(self._ranks)
            return
        given = any(self._plan.given("parallel_param", field) for field in ("num_stages", "num_shards"))
        runs = [len(run) for run in _alike_runs(self._speeds)]
        options = [_divisors(run, deepest) for run in runs]
        if given or len(runs) == 1 or prod(map(len, options)) > MOST_LAYOUTS:
            return
        for depths in product(*options):
            if len(set(depths)) > 1:
                pairs = zip(runs, depths, strict=True)
                yield ReplicaLayout(tuple(depth for run, depth in pairs for _ in range(run // depth)))

    def _with_exchanges(self, plan: RunPlan, replicas: int, shards: int) -> Iterator[RunPlan]:
        """Yield a plan with each exchange, each balance and each update."""
        several = replicas * shards > 1
        pipelines = plan.parallel_param.depth > 1  # in a pipeline the exchange is a small part of the time
        unlike = several and self._speeds.max() > UNLIKE * self._speeds.min() and is_dividable(self._costs.graph)
        balances = [_Parallel.DYNAMIC] if unlike else [_Parallel.UNIFORM]
        if unlike and plan.parallel_param.replica_ranks == 1:
            balances.append(_Parallel.UNIFORM)
        for exchange in self._either("exchange", EXCHANGES[:1] if pipelines or not several else EXCHANGES):
            divides = replicas > 1 and not pipelines and exchange != _Parallel.TREE
            for balance, update in product(
                self._either("balance", balances), self._either("update", UPDATES if divides else UPDATES[:1])
            ):
                yield plan.with_parallel(exchange=exchange, balance=balance, update=update)

    def _with_schedules(self, plan: RunPlan) -> Iterator[RunPlan]:
        """Yield a plan with each schedule and number of micro-batches; layers still normalise by the whole batch."""
        graph, param = self._costs.graph, plan.parallel_param.pipeline_param
        by_batch = any(LAYERS[node.type].normalises_by_batch(node.spec) for node in graph.nodes)
        over = _Pipeline.BATCH if by_batch and not self._given("batch_norm_over") else param.batch_norm_over
        schedules = SCHEDULES if not self._given("schedule") else (param.schedule,)
        if gathering(graph, replace(param, schedule=schedules[0], micro_batches=2, batch_norm_over=over)):
            schedules = schedules[:1]  # under every schedule, all micro-batches run forward before backward begins
        micros: Sequence[int] = MICRO_BATCHES[1::2] if self._ranks >= MANY else MICRO_BATCHES
        if self._given("micro_batches") or param.schedule == _Pipeline.DELAYED:
            micros = (param.micro_batches,)
        for schedule in schedules:
            for micro in micros:
                yield plan.with_pipeline(schedule=schedule, micro_batches=micro, batch_norm_over=over)

    def _either(self, field: str, values: Sequence[int]) -> Sequence[int]:
        """Return the value that the text sets, or all of ``values``."""
        if self._plan.given("parallel_param", field):
            return [getattr(self._plan.parallel_param, field)]
        return values

    def _given(self, field: str) -> bool:
        return self._plan.given("parallel_param", "pipeline_param", field)

    def _bound(self, plan: RunPlan) -> float:
        """Return a lower bound on the seconds of an iteration of a plan that holds for any placement of its stages."""
        parallel, passes = plan.parallel_param, max(plan.optim.iter_size, 1)
        multiplies = parallel.batch_scope == _Parallel.REPLICA
        batch = self._batch * (parallel.layout(self._ranks).replicas if multiplies else 1)
        computing = passes * batch / float(self._speeds.sum())
        if parallel.num_stages > 1:
            param = parallel.pipeline_param
            # The first micro-batch passes all stages before the slowest stage finishes the others.
            micro = param.micro_batches * (1 if param.schedule == _Pipeline.GPIPE else passes)
            fill = parallel.num_stages * float(self._alone.mean() / self._alone.max())
            filling = passes * batch / float(self._alone.sum()) * (micro - 1 + max(fill, 1.0)) / micro
            return computing if parallel.is_delayed else max(computing, filling)
        if parallel.num_shards > 1 or parallel.replica:
            return computing
        if parallel.update != _Parallel.REPLICATED:
            return computing  # its messages have no level within hosts
        if parallel.balance == _Parallel.UNIFORM:
            computing = max(computing, passes * (batch // self._ranks) / float(self._speeds.min()))
        if parallel.compression_param.name or parallel.exchange == _Parallel.LOCAL:
            return computing
        travelling = self._everybody.summed(parallel.exchange, self._gradients, 0)
        if parallel.exchange == _Parallel.TREE:
            return computing + 2 * travelling
        return max(computing, travelling)

    def _iteration(self, plan: RunPlan) -> Iteration | None:
        """Return the iteration of a plan, or ``None`` if the net cannot be placed on its stages."""
        parallel, param = plan.parallel_param, plan.parallel_param.pipeline_param
        layout = parallel.layout(self._ranks)
        key = (layout.kinds, layout.shards, layout.replicas, param)
        if key not in self._stagings:
            try:
                self._stagings[key] = stage_kinds(plan, self._costs.graph, layout, warn=False)
            except PrototxtError:
                self._stagings[key] = None
        stagings = self._stagings[key]
        if stagings is None:
            return None
        return Iteration(Arrangement(plan, self._costs, self._cluster, stagings))


def _alike_runs(speeds: Floats) -> list[list[float]]:
    """Return the runs of consecutive speeds that are alike."""
    runs: list[list[float]] = []
    for speed in speeds.tolist():
        if runs and max(*runs[-1], speed) <= UNLIKE * min(*runs[-1], speed):
            runs[-1].append(speed)
        else:
            runs.append([speed])
    return runs


def _divisors(number: int, most: int) -> list[int]:
    return [each for each in range(1, min(number, most) + 1) if number % each == 0]


def _weighed(plan: RunPlan, seconds: float) -> float:
    """Return the time by which plans are compared."""
    return seconds if plan.parallel_param.update == _Parallel.REPLICATED else seconds * WORTH_DIVIDING


def _is_plain(plan: RunPlan) -> bool:
    """Return whether a plan is plain data parallelism."""
    parallel = plan.parallel_param
    chosen = parallel.exchange, parallel.balance, parallel.update
    return parallel.replica_ranks == 1 and chosen == (_Parallel.ALLREDUCE, _Parallel.UNIFORM, _Parallel.REPLICATED)
