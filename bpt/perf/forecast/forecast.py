"""The forecast of a plan on a cluster: the time of an iteration, the bytes sent, and the memory of each rank.

The forecast simulates training's own instructions on the virtual clock of the pipelines, for all replicas at once:
times are arrays with an element for each data-parallel rank. Replicas meet in the exchange of gradients, which starts
for each segment when the slowest replica has its gradients. The part of the exchange after backward is exposed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from bpt.config.plan.run_plan import RunPlan
from bpt.config.proto import bpt_pb2 as pb
from bpt.engine.instructions import Instruction
from bpt.engine.scheduler import Synchronous
from bpt.graph.layer_spec import count
from bpt.parallel.cluster.cluster import Cluster
from bpt.parallel.pipeline import Pipeline, streams
from bpt.parallel.pipeline.pipeline_clock import WARM
from bpt.parallel.pipeline.simulation import PlayedStage, StageEvent, play
from bpt.parallel.pipeline.simulation.trace import COMPUTE, EXCHANGE
from bpt.perf.forecast.arrangement import Arrangement, arrange
from bpt.perf.forecast.data_rank_times import DataRankTimes
from bpt.perf.forecast.exchange_costs import (
    ExchangeCosts,
    ExchangeOverlap,
    IssuedGradients,
    StageExchange,
    StageLane,
)
from bpt.perf.forecast.gather_overlap import GatherOverlap
from bpt.perf.forecast.iteration_shares import with_balanced_shares
from bpt.perf.forecast.lower_bound import EarliestTimes, lower_bound
from bpt.perf.forecast.net_costs import NetCosts
from bpt.perf.forecast.oversubscription import oversubscription
from bpt.perf.forecast.peak_memory import peak_memory
from bpt.perf.forecast.rank_links import Floats, RankLinks

_Exchange, _Pipeline = pb.ParallelParameter, pb.PipelineParameter
SHOWN_RANKS = 64  # ranks whose timeline is kept
ROUNDING = 1e-9  # relative error of rounding
ROUGHLY = 1e-3  # relative error of the expected maximum


class ForecastBar(NamedTuple):
    """The work of a rank from ``start`` to ``end`` (seconds); ``stream`` is a stream of the virtual clock."""

    rank: int
    stream: str
    label: str
    start: float
    end: float


@dataclass(frozen=True)
class Forecast:
    """The forecast of an iteration of a plan on a cluster.

    Attributes:
        seconds: the time of an iteration in the steady state of a run.
        computing: (ranks,) seconds in which each computes.
        exposed: seconds of exchange that backward does not hide.
        within, between: bytes that travel within hosts, and between them.
        peak_memory: (ranks,) bytes of parameters, gradients, history and blobs.
        memory_limits: (ranks,) bytes of memory that each may use; infinite: without limit.
        shares: samples of each data-parallel rank.
        bars: a timeline of the first ranks.
    """

    plan: RunPlan
    seconds: float
    computing: Floats
    exposed: float
    within: float
    between: float
    peak_memory: Floats
    memory_limits: Floats
    shares: tuple[int, ...]
    bars: tuple[ForecastBar, ...] = field(default=(), repr=False)

    @property
    def fits(self) -> bool:
        """Whether the memory of each rank is large enough."""
        return bool((self.peak_memory <= self.memory_limits).all())

    @property
    def bubble(self) -> float:
        """The part of all ranks' time in which they do not compute."""
        return 1.0 - float(self.computing.mean()) / self.seconds if self.seconds else 0.0

    @property
    def bottleneck(self) -> str:
        """The largest part of an iteration's time: "computing", "exchange", or waiting."""
        parts = {
            "computing": float(self.computing.mean()),
            "exchange": self.exposed,
            "waiting for slower ranks or stages": self.seconds - self.exposed - float(self.computing.mean()),
        }
        return max(parts, key=parts.__getitem__)


def forecast(plan: RunPlan, costs: NetCosts, cluster: Cluster, bars: bool = False) -> Forecast:
    """Return the forecast of ``plan`` on all ranks of ``cluster``; the plan must be synchronous.

    Args:
        bars: whether to keep a timeline.

    Raises:
        PrototxtError: the net cannot be placed on ``num_stages``.
    """
    return Iteration(arrange(plan, costs, cluster)).forecast(bars)


class Iteration:
    """An iteration of an Arrangement: the lower bound of its time, and its forecast."""

    def __init__(self, arrangement: Arrangement) -> None:
        self._links = RankLinks(arrangement.cluster)
        self._a = arrangement = with_balanced_shares(arrangement, self._links)
        self._exchange = ExchangeCosts(arrangement, self._links)
        self._overlap = ExchangeOverlap(arrangement, self._exchange)
        self._kinds = [_KindIteration(kind, self._links) for kind in arrangement.kinds]
        self._is_tree = arrangement.plan.parallel_param.exchange == _Exchange.TREE
        self._is_delayed = arrangement.plan.parallel_param.is_delayed

    @cached_property
    def lower_bound(self) -> float:
        """Lower bound on the seconds of an iteration; 0 if no bound is known."""
        if self._is_delayed:
            return 0.0
        found = [kind.lower_bound for kind in self._kinds]
        exchanges = self._overlap.play(
            [
                StageLane(kind.a, stage, ready + self._own_updates, self._after_updates(issued))
                for kind, times in zip(self._kinds, found, strict=True)
                for stage, (ready, issued) in enumerate(zip(times.ready, times.issued, strict=True))
            ],
            is_bound=True,
        )
        least = self._end_of(exchanges) + self._update + self._exchange.broadcast
        return least * (1 - (ROUGHLY if self._a.speeds.noise.any() else ROUNDING))

    @cached_property
    def _stages(self) -> list[tuple[Arrangement, int, PlayedStage]]:
        """The simulated stages of all kinds of replicas, with their numbers."""
        return [(kind.a, stage, played) for kind in self._kinds for stage, played in enumerate(kind.stages)]

    @cached_property
    def _first(self) -> int:
        """The first simulated iteration that counts; with DELAYED, only the later half does, with a full pipeline."""
        return len(self._stages[0][2].updates) // 2 if self._is_delayed else 0

    @cached_property
    def _gathers(self) -> GatherOverlap:
        """The gather of weights ahead of the forward pass, with a divided update."""
        played = [each for _, _, each in self._stages]
        return GatherOverlap.of(self._exchange, played, self._a.cluster.busy_efficiency)

    def forecast(self, bars: bool = False) -> Forecast:
        """Simulate the iteration and return its forecast."""
        a = self._a
        number = len(self._stages[0][2].updates) - self._first
        lanes = []
        for kind, stage, played in self._stages:
            ready = np.broadcast_to(played.waited[-1], kind.shares.shape) + self._own_updates
            lanes.append(StageLane(kind, stage, ready, self._after_updates(self._issued(played))))
        exchanges = self._overlap.play(lanes)
        last = max(own.undisturbed for own in exchanges)
        end, before = self._end_of(exchanges), self._exchange.broadcast + self._gathers.delay
        seconds = end + self._update
        if self._first:  # each simulated iteration has an exchange and an update
            first = float(np.max(self._stages[-1][2].updates[self._first - 1]))
            seconds = max((last - first) / number + self._update, *(own.seconds for own in exchanges))
        computing = np.zeros(a.size)
        for kind, stage, played in self._stages:
            iterations = len(played.updates) if self._first else 1
            computing[kind.data_ranks[stage]] = np.broadcast_to(played.busy, kind.shares.shape) / iterations
        within, between = self._bytes_sent()
        return Forecast(
            a.plan,
            seconds + before,
            computing,
            max(end - last, 0.0) + before,
            within,
            between,
            sum((peak_memory(kind.a, kind.stages) for kind in self._kinds), np.zeros(a.size)),
            np.array(a.cluster.of_ranks(lambda node: node.memory / node.ranks)),
            tuple(a.all_shares.tolist()),
            tuple(self._bars(exchanges)) if bars else (),
        )

    def _issued(self, played: PlayedStage) -> IssuedGradients:
        events = [event for event in played.events if event.stream == EXCHANGE]
        each = len(events) // len(played.updates) if self._first else len(events)
        own = events[len(events) - each :]
        return [(event.instruction.segment, np.asarray(event.start)) for event in own]  # type: ignore[union-attr]

    def _end_of(self, exchanges: Sequence[StageExchange]) -> float:
        """Return the moment at which all gradients are summed and all ranks have shared their status."""
        is_known = max(own.ready for own in exchanges) + self._exchange.status
        return max(is_known, *(own.end for own in exchanges))

    @cached_property
    def _own_updates(self) -> Floats | float:
        """Seconds by which the update of each data-parallel rank delays its next iteration, if that waits for no other.

        With stages or a divided update the others' updates are waited for, and with TREE the root's: then ``_update``
        delays all.
        """
        waits = self._a.staging is not None or self._is_tree or self._is_delayed or self._exchange.divides
        return 0.0 if waits else self._kinds[0].times_alone.update(0)

    def _after_updates(self, issued: IssuedGradients) -> IssuedGradients:
        return [(segment, moments + self._own_updates) for segment, moments in issued]

    @cached_property
    def _update(self) -> float:
        """Seconds of the update on the slowest rank for which all others wait; with TREE only the root updates."""
        if np.any(self._own_updates):
            return 0.0
        updates = []
        for kind in self._kinds:
            for stage, data_ranks in enumerate(kind.a.data_ranks):
                updates.append(kind.times_alone.update(stage) / (len(data_ranks) if self._exchange.divides else 1))
        return max(float(each[0] if self._is_tree else np.max(each)) for each in updates)

    def _bytes_sent(self) -> tuple[float, float]:
        """Return the bytes of gradients and of blobs within hosts and between them."""
        found, hosts = self._exchange.bytes_sent(), self._links.hosts
        for kind in self._kinds:
            a, itemsizes = kind.a, kind.times_alone.itemsizes
            for each in a.transfers:
                size = count(each.shape) * itemsizes[each.edges[0]] / a.costs.batch * a.passes * (1 + each.diff)
                crosses = hosts[a.data_ranks[each.from_stage]] != hosts[a.data_ranks[each.to_stage]]
                found += np.array([(~crosses * a.shares).sum(), (crosses * a.shares).sum()]) * size
        return float(found[0]), float(found[1])

    def _bars(self, exchanges: Sequence[StageExchange]) -> Iterator[ForecastBar]:
        size, broadcast, gathers = self._a.size, self._exchange.broadcast, self._gathers
        shift = broadcast + gathers.delay
        if broadcast:
            yield from (ForecastBar(rank, EXCHANGE, "C", 0.0, broadcast) for rank in range(min(size, SHOWN_RANKS)))
        lanes = zip(self._stages, exchanges, gathers.intervals, strict=True)
        for (kind, stage, played), exchange, gathered in lanes:
            intervals = {segment: (start, end) for segment, start, end in exchange.intervals}
            updates = np.broadcast_to(self._own_updates, kind.shares.shape)
            for place, rank in enumerate(kind.data_ranks[stage].tolist()):
                if rank < SHOWN_RANKS:
                    for segment, start, end in gathered:
                        yield ForecastBar(rank, EXCHANGE, f"G{segment}", start, end)
                    yield from _bars_of_rank(rank, place, played.events, intervals, shift, float(updates[place]))


class _KindIteration:
    """The passes of an iteration of all replicas of a kind, without their exchange.

    Args:
        arrangement: that of the kind.
        links: the links between ranks.
    """

    def __init__(self, arrangement: Arrangement, links: RankLinks) -> None:
        self.a = arrangement
        self._links = links

    @property
    def lower_bound(self) -> EarliestTimes:
        """The earliest times of the stages, by any rule except DELAYED."""
        rule = self.a.staging.rule if self.a.staging else _Pipeline.GPIPE
        return lower_bound(self._pipeline, rule, self.times_alone)

    @cached_property
    def times_alone(self) -> DataRankTimes:
        """The times if each rank computes alone on its node or, without stages, if all ranks compute."""
        a = self.a
        return DataRankTimes(a, self._links, a.speeds.ranks_per_core if a.staging else np.ones(a.size))

    @cached_property
    def _times(self) -> DataRankTimes:
        """The times if, on average, as many ranks of a node compute at once as in the pipeline."""
        a = self.a
        if not a.staging or (a.speeds.ranks_per_core == 1).all():
            return self.times_alone
        played = play(self._streams, self.times_alone, np.maximum)[0]
        return DataRankTimes(a, self._links, a.speeds.ranks_per_core / oversubscription(a, played))

    @cached_property
    def _pipeline(self) -> Pipeline:
        """The pipeline; without stages, one stage with all segments takes the whole batch."""
        a, gathers = self.a, self.times_alone.gathers
        is_tree = a.plan.parallel_param.exchange == _Exchange.TREE
        return Pipeline(a.stage_of, a.transfers, a.passes, a.micro_batches, is_tree, gathers=gathers)

    @cached_property
    def _streams(self) -> Sequence[Sequence[Instruction]]:
        a, pipeline = self.a, self._pipeline
        if not a.staging:
            return [list(Synchronous(len(a.segments), a.passes, pipeline.broadcast).training(0, 0))]
        iterations = 2 * WARM * len(pipeline.blocks) if a.plan.parallel_param.is_delayed else 1
        return streams(a.staging.rule, pipeline, iterations)

    @cached_property
    def stages(self) -> Sequence[PlayedStage]:
        """The simulated work of each stage."""
        return play(self._streams, self._times, np.maximum)[0]


def _bars_of_rank(
    rank: int,
    place: int,
    events: Sequence[StageEvent],
    exchanges: Mapping[int, tuple[float, float]],
    shift: float,
    update: float,
) -> Iterator[ForecastBar]:
    def at(moment: object) -> float:
        values = np.atleast_1d(np.asarray(moment, dtype=np.float64))
        return float(values[place if len(values) > 1 else 0]) + shift + update

    for event in events:
        if event.stream == COMPUTE:
            yield ForecastBar(rank, COMPUTE, event.label, at(event.start), at(event.end))
    for segment, (start, end) in exchanges.items():
        if end > start:
            yield ForecastBar(rank, EXCHANGE, f"X{segment}", start + shift, end + shift)
