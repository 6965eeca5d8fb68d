"""What ``bpt simulate`` does: a solver's outer layer on a made-up cluster, by one strategy or several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from bpt.errors import PrototxtError, RunError, UsageError, did_you_mean
from bpt.graph.spec import Shape
from bpt.plan.solver_rules import check_solver
from bpt.predict.cluster_file import ClusterSource
from bpt.proto import bpt_pb2 as pb
from bpt.proto.sources import SolverSource
from bpt.schedule.outer.exchanges import OUTER, passes_of
from bpt.schedule.outer.simulation.cluster import Cluster
from bpt.schedule.outer.simulation.outcome import Outcome
from bpt.schedule.outer.simulation.simulator import Job, simulate
from bpt.server.legality import apart, check_outer, without_effect
from bpt.server.outer_schedule import schedule_of
from bpt.simulate.simulation_net import Facts, facts_of

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
    source: SolverSource,
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
    strategies = strategies or (_own_strategy(source),)
    for strategy in strategies:
        _check(source, strategy)
    if not source.param.max_iter:
        raise PrototxtError("max_iter is 0: nothing is trained, which takes no time", source.origin("max_iter"))
    described = ClusterSource(cluster_path)
    param = source.param
    facts = facts_of(source, samples, shape)
    colocated = param.parallel_param.server == pb.ParallelParameter.COLOCATED
    seed = max(param.random_seed, 0)
    cluster = described.cluster(facts.flops, seed, colocated)
    passes = passes_of(param.max_iter, facts.batch, facts.samples)
    job = Job(facts.batch, facts.weights, facts.record)
    outcomes, params = {}, []
    for strategy in strategies:
        params.append(_chosen(param.parallel_param, strategy))
        schedule = schedule_of(source, params[-1], facts.samples, len(cluster.nodes), passes)
        try:
            outcomes[strategy] = simulate(schedule, cluster, job, seed)
        except RunError as error:
            raise RunError(f"{described.path}: {strategy}: {error}") from None
    remarks = [f"parallel_param: {remark}" for remark in without_effect(*params)]
    if facts.samples < len(cluster.nodes):
        remarks.append(f"there are {len(cluster.nodes)} nodes for {facts.samples} samples: some have nothing to train")
    return Simulated(facts, cluster, float(passes), outcomes, remarks)


def _own_strategy(source: SolverSource) -> Strategy:
    """What ``parallel_param`` says."""
    parallel = source.param.parallel_param
    exchange, balance = _EXCHANGE.Name(parallel.exchange), _BALANCE.Name(parallel.balance)
    if parallel.exchange not in OUTER:
        default = "" if parallel.HasField("exchange") else " (the default)"
        raise PrototxtError(
            f"parallel_param: exchange: {exchange}{default} cannot be simulated, only SGWU, AGWU and ASGD; add --set "
            "'parallel_param { exchange: AGWU balance: IDPA }' or --strategies all",
            source.origin("parallel_param", "exchange"),
        )
    check_outer(source)
    return Strategy(exchange, balance)


def _check(source: SolverSource, strategy: Strategy) -> None:
    """Refuse what a real run would refuse."""
    chosen = pb.SolverParameter()
    chosen.CopyFrom(source.param)
    chosen.parallel_param.CopyFrom(_chosen(chosen.parallel_param, strategy))
    check_outer(replace(source, param=chosen))
    check_solver(apart(source), writes=False)


def _chosen(param: pb.ParallelParameter, strategy: Strategy) -> pb.ParallelParameter:
    """A copy with the strategy's exchange and balance."""
    chosen = pb.ParallelParameter()
    chosen.CopyFrom(param)
    chosen.exchange = _EXCHANGE.Value(strategy.exchange)  # type: ignore[assignment]
    chosen.balance = _BALANCE.Value(strategy.balance)  # type: ignore[assignment]
    return chosen
