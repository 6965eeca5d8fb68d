"""Simulates a solver's outer layer on a described cluster, with one or several strategies; ``bpt simulate``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from bpt.base.errors import PrototxtError, RunError, UsageError, did_you_mean
from bpt.base.violation import refuse
from bpt.config.plan.run_plan import RunPlan
from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_spec import Shape
from bpt.parallel.cluster.cluster import Cluster
from bpt.parallel.cluster.cluster_file import ClusterSource
from bpt.parallel.outer.exchanges import make_schedule, passes_of
from bpt.parallel.outer.simulation.outcome import SimulationOutcome
from bpt.parallel.outer.simulation.simulator import SimulatedJob, simulate
from bpt.perf.simulate.simulation_net import NetWorkload, workload_of
from bpt.train.rules.violations import ignored_settings, violations

_EXCHANGE, _BALANCE = pb.ParallelParameter.Exchange, pb.ParallelParameter.Balance
_PAPER = {"UNIFORM": "UDPA", "IDPA": "IDPA"}  # value of ``balance`` → the paper's name


@dataclass(frozen=True)
class Strategy:
    """An update of weights with a division of data; ``str()`` gives the paper's names: ``AGWU+IDPA``."""

    exchange: str
    balance: str

    def __str__(self) -> str:
        return f"{self.exchange}+{_PAPER[self.balance]}"


PAPER_STRATEGIES = tuple(
    Strategy(exchange, balance) for exchange in ("SGWU", "AGWU") for balance in ("UNIFORM", "IDPA")
)
"""The strategies that the paper compares (Fig. 14)."""
_KNOWN = {
    str(strategy): strategy for strategy in (*PAPER_STRATEGIES, Strategy("ASGD", "UNIFORM"), Strategy("ASGD", "IDPA"))
}


@dataclass(frozen=True)
class SimulationResult:
    """The simulated runs and their outcomes.

    Attributes:
        facts: the net.
        cluster: the nodes.
        passes: K, the passes over the data set.
        outcomes: the outcome of each strategy.
        remarks: settings that the user may not have intended.
    """

    facts: NetWorkload
    cluster: Cluster
    passes: float
    outcomes: Mapping[Strategy, SimulationOutcome]
    remarks: Sequence[str] = ()


def strategies_of(text: str) -> tuple[Strategy, ...]:
    """Return the strategies that ``--strategies`` names; empty text gives no strategies.

    Raises:
        UsageError: a strategy is unknown.
    """
    if text == "all":
        return PAPER_STRATEGIES
    for name in (names := [word for word in text.split(",") if word]):
        if name not in _KNOWN:
            hint = did_you_mean(name, _KNOWN)
            raise UsageError(f'--strategies: unknown strategy "{name}"{hint} (known: all, {", ".join(_KNOWN)})')
    return tuple(_KNOWN[name] for name in dict.fromkeys(names))


def simulate_solver(
    plan: RunPlan,
    cluster_path: str,
    strategies: Sequence[Strategy] = (),
    samples: int = 0,
    shape: Shape = (),
) -> SimulationResult:
    """Simulate the solver's run on the cluster of the file at ``cluster_path``, once for each strategy.

    Args:
        strategies: the strategies; empty: the solver's own.
        samples, shape: as in ``workload_of``.

    Raises:
        PrototxtError: the solver, its net or the cluster is wrong, or cannot be simulated.
        UsageError: the shape is not that of the net's data.
        RunError: all nodes die before the run has ended.
    """
    strategies = strategies or (_own_strategy(plan),)
    for strategy in strategies:
        _check(plan, strategy)
    if not plan.max_iter:
        raise PrototxtError("max_iter is 0, so there is nothing to simulate", plan.origin("max_iter"))
    described = ClusterSource(cluster_path)
    facts = workload_of(plan, samples, shape)
    colocated = plan.parallel_param.server == pb.ParallelParameter.COLOCATED
    seed = max(plan.random_seed, 0)
    cluster = described.cluster(facts.flops, seed, colocated)
    passes = passes_of(plan.max_iter, facts.batch, facts.samples)
    job = SimulatedJob(facts.batch, facts.weights, facts.record)
    outcomes = {}
    for strategy in strategies:
        schedule = make_schedule(_chosen(plan, strategy), facts.samples, len(cluster.nodes), passes, facts.grain)
        try:
            outcomes[strategy] = simulate(schedule, cluster, job, seed)
        except RunError as error:
            raise RunError(f"{described.path}: {strategy}: {error}") from None
    remarks = list(_ignored_settings([_chosen(plan, strategy) for strategy in strategies]))
    if facts.samples // facts.grain < len(cluster.nodes):
        there = f"{facts.samples} samples" if facts.grain == 1 else f"{facts.samples // facts.grain} whole batches"
        remarks.append(f"there are {len(cluster.nodes)} nodes for {there}: some have nothing to train")
    return SimulationResult(facts, cluster, float(passes), outcomes, remarks)


def _own_strategy(plan: RunPlan) -> Strategy:
    """Return the strategy of ``parallel_param``."""
    parallel = plan.parallel_param
    exchange, balance = _EXCHANGE.Name(parallel.exchange), _BALANCE.Name(parallel.balance)
    if not plan.is_outer:
        default = "" if plan.given("parallel_param", "exchange") else " (the default)"
        raise PrototxtError(
            f"parallel_param: exchange: {exchange}{default} cannot be simulated, only SGWU, AGWU and ASGD; add --set "
            "'parallel_param { exchange: AGWU balance: IDPA }' or --strategies all",
            plan.origin("parallel_param", "exchange"),
        )
    refuse(plan, violations(plan))
    return Strategy(exchange, balance)


def _check(plan: RunPlan, strategy: Strategy) -> None:
    """Refuse a strategy that a real run would refuse."""
    chosen = _chosen(plan, strategy)
    refuse(chosen, violations(chosen))


def _chosen(plan: RunPlan, strategy: Strategy) -> RunPlan:
    """Return the plan with the strategy's exchange and balance; samples migrate with IDPA only."""
    param = plan.parallel_param.balance_param
    return plan.with_parallel(
        exchange=_EXCHANGE.Value(strategy.exchange),
        balance=_BALANCE.Value(strategy.balance),
        balance_param=replace(param, migrate=param.migrate and strategy.balance == "IDPA"),
    )


def _ignored_settings(plans: Sequence[RunPlan]) -> Iterator[str]:
    """Yield the settings that have no effect in any of several runs."""
    found = [{remark.field: remark for remark in ignored_settings(plan)} for plan in plans]
    for field, remark in found[0].items():
        if all(field in of_plan for of_plan in found):
            reasons = dict.fromkeys(of_plan[field].why for of_plan in found)
            yield str(replace(remark, why=" or ".join(reasons)))
