"""What ``bpt simulate`` does: a solver's outer layer on a made-up cluster, by one strategy or several."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from bpt.errors import PrototxtError, RunError, UsageError, did_you_mean
from bpt.graph.spec import Shape
from bpt.plan.spec import RunPlan
from bpt.plan.violations import unused, violations
from bpt.predict.cluster_file import ClusterSource
from bpt.proto import bpt_pb2 as pb
from bpt.schedule.cluster import Cluster
from bpt.schedule.outer.exchanges import make_schedule, passes_of
from bpt.schedule.outer.simulation.outcome import Outcome
from bpt.schedule.outer.simulation.simulator import Job, simulate
from bpt.simulate.simulation_net import Facts, facts_of
from bpt.violation import refuse

_EXCHANGE, _BALANCE = pb.ParallelParameter.Exchange, pb.ParallelParameter.Balance
_PAPER = {"UNIFORM": "UDPA", "IDPA": "IDPA"}  # what the paper calls the values of ``balance``


@dataclass(frozen=True)
class Strategy:
    """How weights are updated and data divided; prints as the paper names it: ``AGWU+IDPA``."""

    exchange: str
    balance: str

    def __str__(self) -> str:
        return f"{self.exchange}+{_PAPER[self.balance]}"


THE_FOUR = tuple(Strategy(exchange, balance) for exchange in ("SGWU", "AGWU") for balance in ("UNIFORM", "IDPA"))
"""Those that the paper compares (Fig. 14)."""
_KNOWN = {str(strategy): strategy for strategy in (*THE_FOUR, Strategy("ASGD", "UNIFORM"), Strategy("ASGD", "IDPA"))}


@dataclass(frozen=True)
class Simulated:
    """What was simulated, and what came out.

    Attributes:
        passes: K.
        remarks: what the user may not have meant.
    """

    facts: Facts
    cluster: Cluster
    passes: float
    outcomes: Mapping[Strategy, Outcome]
    remarks: Sequence[str] = ()


def strategies_of(text: str) -> tuple[Strategy, ...]:
    """The strategies that ``--strategies`` names; none for an empty text: that of the solver.

    Raises:
        UsageError: there is no such strategy.
    """
    if text == "all":
        return THE_FOUR
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
) -> Simulated:
    """Simulate the solver's run on the cluster of the file at ``cluster_path``, once for each strategy.

    Args:
        strategies: which; none: the one that the solver says.
        samples, shape: see ``facts_of``.

    Raises:
        PrototxtError: the solver, its net or the cluster is wrong, or cannot be simulated.
        UsageError: the shape is not that of the net's data.
        RunError: all nodes die before the run has ended.
    """
    strategies = strategies or (_own_strategy(plan),)
    for strategy in strategies:
        _check(plan, strategy)
    if not plan.max_iter:
        raise PrototxtError("max_iter is 0: nothing is trained, which takes no time", plan.origin("max_iter"))
    described = ClusterSource(cluster_path)
    facts = facts_of(plan, samples, shape)
    colocated = plan.parallel_param.server == pb.ParallelParameter.COLOCATED
    seed = max(plan.random_seed, 0)
    cluster = described.cluster(facts.flops, seed, colocated)
    passes = passes_of(plan.max_iter, facts.batch, facts.samples)
    job = Job(facts.batch, facts.weights, facts.record)
    outcomes = {}
    for strategy in strategies:
        schedule = make_schedule(_chosen(plan, strategy), facts.samples, len(cluster.nodes), passes, facts.grain)
        try:
            outcomes[strategy] = simulate(schedule, cluster, job, seed)
        except RunError as error:
            raise RunError(f"{described.path}: {strategy}: {error}") from None
    remarks = list(_unused([_chosen(plan, strategy) for strategy in strategies]))
    if facts.samples // facts.grain < len(cluster.nodes):
        there = f"{facts.samples} samples" if facts.grain == 1 else f"{facts.samples // facts.grain} whole batches"
        remarks.append(f"there are {len(cluster.nodes)} nodes for {there}: some have nothing to train")
    return Simulated(facts, cluster, float(passes), outcomes, remarks)


def _own_strategy(plan: RunPlan) -> Strategy:
    """What ``parallel_param`` says."""
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
    """Refuse what a real run would refuse."""
    chosen = _chosen(plan, strategy)
    refuse(chosen, violations(chosen))


def _chosen(plan: RunPlan, strategy: Strategy) -> RunPlan:
    """The plan with the strategy's exchange and balance."""
    return plan.with_parallel(exchange=_EXCHANGE.Value(strategy.exchange), balance=_BALANCE.Value(strategy.balance))


def _unused(plans: Sequence[RunPlan]) -> Iterator[str]:
    """What has no effect in any of several runs."""
    found = [{remark.field: remark for remark in unused(plan)} for plan in plans]
    for field, remark in found[0].items():
        if all(field in of_plan for of_plan in found):
            reasons = dict.fromkeys(of_plan[field].why for of_plan in found)
            yield str(replace(remark, why=" or ".join(reasons)))
