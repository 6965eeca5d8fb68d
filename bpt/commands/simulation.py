"""What ``bpt simulate`` does: a solver's outer layer on a made-up cluster, by one strategy or several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bpt.commands.simulation_net import Facts, facts_of
from bpt.errors import PrototxtError, UsageError, UserError, did_you_mean
from bpt.graph.spec import Shape
from bpt.proto import bpt_pb2 as pb
from bpt.proto.solver import SolverSource
from bpt.schedule.outer.making import OUTER, make_schedule, passes_of
from bpt.schedule.outer.simulation.cluster import Cluster
from bpt.schedule.outer.simulation.outcome import Outcome
from bpt.schedule.outer.simulation.simulator import Job, simulate
from bpt.solvers.check import check_solver
from bpt.solvers.cluster_file import ClusterSource
from bpt.solvers.outer.check import apart, check_outer

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
    """

    facts: Facts
    cluster: Cluster
    passes: float
    outcomes: Mapping[Strategy, Outcome]


def strategies_of(text: str) -> tuple[Strategy, ...]:
    """The strategies that ``--strategies`` names; none for an empty text: that of the solver.

    Raises:
        UsageError: there is no such strategy.
    """
    if text == "all":
        return THE_FOUR
    for name in (names := [word for word in text.split(",") if word]):
        if name not in _KNOWN:
            hint = did_you_mean(name, _KNOWN) or f" (known: {', '.join(_KNOWN)})"
            raise UsageError(f'--strategies: unknown strategy "{name}"{hint}')
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
    """
    strategies = strategies or (_own_strategy(source),)
    for strategy in strategies:
        _check(source, strategy)
    described = ClusterSource(cluster_path)
    param = source.param
    facts = facts_of(source, samples, shape)
    colocated = param.parallel_param.server == pb.ParallelParameter.COLOCATED
    seed = max(param.random_seed, 0)
    cluster = described.cluster(facts.flops, seed, colocated)
    passes = passes_of(param.max_iter, facts.batch, facts.samples)
    job = Job(facts.batch, facts.weights, facts.record)
    outcomes = {}
    for strategy in strategies:
        _choose(param.parallel_param, strategy)
        try:
            schedule = make_schedule(param.parallel_param, facts.samples, len(cluster.nodes), passes)
        except PrototxtError:
            raise
        except UserError as error:
            field = str(error).split(":")[0]  # the message that holds the wrong number
            raise PrototxtError(f"parallel_param: {error}", source.origin("parallel_param", field)) from None
        outcomes[strategy] = simulate(schedule, cluster, job, seed)
    return Simulated(facts, cluster, float(passes), outcomes)


def _own_strategy(source: SolverSource) -> Strategy:
    """What ``parallel_param`` says."""
    parallel = source.param.parallel_param
    exchange, balance = _EXCHANGE.Name(parallel.exchange), _BALANCE.Name(parallel.balance)
    if parallel.exchange not in OUTER:
        raise PrototxtError(
            f"parallel_param: exchange: {exchange} cannot be simulated, only SGWU, AGWU and ASGD; add --set "
            "'parallel_param { exchange: AGWU balance: IDPA }' or --strategies all",
            source.origin("parallel_param", "exchange"),
        )
    check_outer(source)
    return Strategy(exchange, balance)


def _check(source: SolverSource, strategy: Strategy) -> None:
    """Refuse what a real run would refuse."""
    _choose(source.param.parallel_param, strategy)
    check_outer(source)
    check_solver(apart(source), writes=False)


def _choose(param: pb.ParallelParameter, strategy: Strategy) -> None:
    param.exchange = _EXCHANGE.Value(strategy.exchange)  # type: ignore[assignment]
    param.balance = _BALANCE.Value(strategy.balance)  # type: ignore[assignment]
