"""Drift: the forecast of a plan beside the measured times, and the plan that the measured times call for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bpt.base.errors import UserError
from bpt.config.plan.chosen import change_of
from bpt.config.plan.run_plan import RunPlan
from bpt.graph.layer_graph import LayerGraph
from bpt.parallel.cluster.cluster import Cluster
from bpt.perf.forecast.arrangement import arrange
from bpt.perf.forecast.forecast import Iteration, forecast
from bpt.perf.forecast.net_costs import NetCosts
from bpt.perf.forecast.search import search
from bpt.system.comm.connectivity import name_of
from bpt.train.telemetry.rank_loads import Predicted, RankLoad, as_ms

THRESHOLD = 1.2  # ratio of measured to predicted time, or its inverse, from which a drift is reported
INTERVALS = 2  # consecutive intervals beyond the threshold before it is reported
WORTH = 1.05  # another plan must be faster by this factor
SEARCHED = 64  # ranks up to which a new plan is searched for, since all ranks wait for the search
FASTEST = 64.0  # largest factor by which links may be faster, or slower, than measured
HALVINGS = 12  # bisections that find this factor


@dataclass(frozen=True)
class PlanAssumptions:
    """The assumptions by which a plan was chosen.

    Attributes:
        plan: the plan that is trained.
        costs: the costs of its net.
        cluster: the measured ranks.
        tests: the graphs of its test nets.
    """

    plan: RunPlan
    costs: NetCosts
    cluster: Cluster
    tests: Sequence[LayerGraph] = ()


class Drift:
    """The comparison of a run's forecast with the times of its ranks, interval by interval, on the first rank.

    The first interval does not count, because ranks try memory layouts in it.
    """

    def __init__(self, basis: PlanAssumptions) -> None:
        self._basis = basis
        self._arrangement = arrange(basis.plan, basis.costs, basis.cluster)
        self._made = Iteration(self._arrangement).forecast()
        self._intervals = 0
        self._consecutive = 0  # consecutive intervals that are slower; below 0: that are faster
        self._reported = 1.0

    def predicted(self, shares: Sequence[int]) -> list[Predicted] | None:
        """Return the predicted load of each rank.

        Args:
            shares: current samples of a pass of each data-parallel rank; ``balance: DYNAMIC`` changes them.

        Returns:
            ``None`` if ranks were lost, since the cluster does not describe the remaining ones.
        """
        made, arrangement = self._made, self._arrangement
        if len(shares) != len(arrangement.all_shares):
            return None
        computing = made.computing.copy()
        for kind in arrangement.kinds:
            for data_ranks in kind.data_ranks:
                computing[data_ranks] *= np.asarray(shares)[kind.share_numbers] / np.maximum(kind.shares, 1)
        found = []
        for own in computing.tolist():
            others = max(made.seconds - own, 0.0)
            exchange = min(made.exposed, others) if arrangement.staging else others
            found.append(Predicted(own, exchange, others - exchange))
        return found

    def lines(self, loads: Sequence[RankLoad], shares: Sequence[int]) -> Iterator[str]:
        """Yield the log lines of an interval.

        Args:
            loads: the measured loads of all ranks.
            shares: current samples of a pass of each data-parallel rank.
        """
        predicted = self.predicted(shares)
        if predicted is None or len(loads) != len(predicted):
            return
        self._intervals += 1
        if self._intervals == 1:
            return
        computing = [each.computing for each in predicted]
        seen, expected = max(load.whole for load in loads), self._made.seconds
        exchange = min(load.exchange for load in loads)
        yield (
            f"    Predicted {as_ms(expected)} an iteration, seen {as_ms(seen)}: ranks are busy "
            f"{_span([own for own in computing if own])}, seen "
            f"{_span([load.occupied for load, own in zip(loads, computing, strict=True) if own])}; exchange adds "
            f"{as_ms(self._made.exposed)}, seen {as_ms(exchange)}"
        )
        ratio = seen / expected
        if _ratio_of(ratio, 1.0) < THRESHOLD:
            self._consecutive, self._reported = 0, 1.0
            return
        self._consecutive = max(self._consecutive, 0) + 1 if ratio > 1 else min(self._consecutive, 0) - 1
        if abs(self._consecutive) >= INTERVALS and _ratio_of(ratio, self._reported) >= THRESHOLD:
            self._reported = ratio
            yield (
                f"Drift: an iteration takes {as_ms(seen)}, and {as_ms(expected)} were predicted: "
                f"{self._reason(loads, computing, exchange, ratio > 1)}{self._outlook(loads, computing, exchange)}"
            )

    def _reason(self, loads: Sequence[RankLoad], computing: Sequence[float], exchange: float, is_slow: bool) -> str:
        """Return the largest cause of the longer, or shorter, iteration."""
        made, sign = self._made, 1 if is_slow else -1
        found = [(sign * (exchange - made.exposed), f"exchange adds {as_ms(exchange)}, not {as_ms(made.exposed)}")]
        for rank, (load, own) in enumerate(zip(loads, computing, strict=True)):
            if own > 0:
                name, seen = name_of(rank, load.host), load.computing + load.layers
                found.append((sign * load.data, f"{name} waits {as_ms(load.data)} for data"))
                found.append((sign * (seen - own), f"{name} computes {as_ms(seen)}, not {as_ms(own)}"))
        return max(found, key=lambda each: each[0])[1]

    def _outlook(self, loads: Sequence[RankLoad], computing: Sequence[float], exchange: float) -> str:
        """Return the time of the fastest plan at the measured speeds, and the flag that sets it."""
        basis = self._basis
        if len(loads) > SEARCHED:
            return ""
        cluster = self._corrected(loads, computing, exchange)
        now = forecast(basis.plan, basis.costs, cluster).seconds
        try:
            best = search(basis.plan, basis.costs, cluster, 1, basis.tests).best[0]
        except UserError:  # at these speeds, the shares of other ranks do not fit into memory
            best = None
        if best is None or best.seconds * WORTH > now:
            return "; at the current speeds no plan is known to be faster"
        change = change_of(basis.plan.parallel_param, best.plan.parallel_param)
        return (
            f"; at the current speeds another plan would take {as_ms(best.seconds)} instead of {as_ms(now)}: continue "
            f"from a snapshot with --set '{change}'"
        )

    def _corrected(self, loads: Sequence[RankLoad], computing: Sequence[float], exchange: float) -> Cluster:
        """Return the cluster with the measured speeds, and with links that give the measured exposed exchange."""
        basis, cluster = self._basis, self._basis.cluster
        slower: list[list[float]] = [[] for _ in cluster.nodes]
        for rank, (load, own) in enumerate(zip(loads, computing, strict=True)):
            if own > 0 and load.occupied > 0:
                slower[cluster.hosts[rank]].append(load.occupied / own)
        nodes = []
        for node, factors in zip(cluster.nodes, slower, strict=True):
            factor = float(np.mean(factors)) if factors else 1.0
            names = "overhead", "update", "border", "border_overhead", "interference"
            seconds = {name: getattr(node, name) * factor for name in names}
            coding = tuple((codec, each * factor) for codec, each in node.coding)
            nodes.append(replace(node, speed=node.speed / factor, coding=coding, **seconds))
        cluster = replace(cluster, nodes=tuple(nodes))
        least, most = 1 / FASTEST, FASTEST
        for _ in range(HALVINGS):
            middle = float((least * most) ** 0.5)
            if forecast(basis.plan, basis.costs, cluster.faster(middle, middle, within=True)).exposed > exchange:
                least = middle
            else:
                most = middle
        middle = float((least * most) ** 0.5)
        return cluster.faster(middle, middle, within=True)


def _ratio_of(one: float, other: float) -> float:
    return max(one / other, other / one)


def _span(seconds: Sequence[float]) -> str:
    least, most = as_ms(min(seconds, default=0.0)), as_ms(max(seconds, default=0.0))
    return most if least == most else f"{least} to {most}"
