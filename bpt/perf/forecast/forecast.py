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
from bpt.perf.forecast.exchange_costs import ExchangeCosts, ExchangeOverlap, IssuedGradients, StageExchange
from bpt.perf.forecast.gather_overlap import GatherOverlap
from bpt.perf.forecast.iteration_shares import with_balanced_shares
from bpt.perf.forecast.lower_bound import lower_bound
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
        self._is_tree = arrangement.plan.parallel_param.exchange == _Exchange.TREE
        self._is_delayed = arrangement.plan.parallel_param.is_delayed

    @cached_property
    def lower_bound(self) -> float:
        """Lower bound on the seconds of an iteration; 0 if no bound is known."""
        if self._is_delayed:
            return 0.0
        a = self._a
        rule = a.staging.rule if a.staging else _Pipeline.GPIPE
        found = lower_bound(self._pipeline, rule, self._times_alone)
        exchanges = [
            self._overlap.play(stage, ready + self._own_updates, self._after_updates(issued), is_bound=True)
            for stage, (ready, issued) in enumerate(zip(found.ready, found.issued, strict=True))
        ]
        least = self._end_of(exchanges) + self._update + self._exchange.broadcast
        return least * (1 - (ROUGHLY if a.speeds.noise.any() else ROUNDING))

    @cached_property
    def _times_alone(self) -> DataRankTimes:
        """The times if each rank computes alone on its node or, without stages, if all ranks compute."""
        a = self._a
        return DataRankTimes(a, self._links, a.speeds.ranks_per_core if a.staging else np.ones(a.size))

    @cached_property
    def _times(self) -> DataRankTimes:
        """The times if, on average, as many ranks of a node compute at once as in the pipeline."""
        a = self._a
        if not a.staging or (a.speeds.ranks_per_core == 1).all():
            return self._times_alone
        played = play(self._streams, self._times_alone, np.maximum)[0]
        return DataRankTimes(a, self._links, a.speeds.ranks_per_core / oversubscription(a, played))

    @cached_property
    def _pipeline(self) -> Pipeline:
        """The pipeline; without stages, one stage with all segments takes the whole batch."""
        a = self._a
        gathers = self._times_alone.gathers
        return Pipeline(a.stage_of, a.transfers, a.passes, a.micro_batches, self._is_tree, gathers=gathers)

    @cached_property
    def _streams(self) -> Sequence[Sequence[Instruction]]:
        a, pipeline = self._a, self._pipeline
        if not a.staging:
            return [list(Synchronous(len(a.segments), a.passes, pipeline.broadcast).training(0, 0))]
        return streams(a.staging.rule, pipeline, 2 * WARM * len(pipeline.blocks) if self._is_delayed else 1)

    @cached_property
    def _stages(self) -> Sequence[PlayedStage]:
        return play(self._streams, self._times, np.maximum)[0]

    @cached_property
    def _first(self) -> int:
        """The first simulated iteration that counts; with DELAYED, only the later half does, with a full pipeline."""
        return len(self._stages[0].updates) // 2 if self._is_delayed else 0

    @cached_property
    def _gathers(self) -> GatherOverlap:
        """The gather of weights ahead of the forward pass, with a divided update."""
        return GatherOverlap.of(self._exchange, self._stages, self._a.cluster.busy_efficiency)

    def forecast(self, bars: bool = False) -> Forecast:
        """Simulate the iteration and return its forecast."""
        a = self._a
        number = len(self._stages[0].updates) - self._first
        exchanges = [
            self._overlap.play(
                stage,
                np.broadcast_to(played.waited[-1], a.shares.shape) + self._own_updates,
                self._after_updates(self._issued(played)),
            )
            for stage, played in enumerate(self._stages)
        ]
        last = max(own.undisturbed for own in exchanges)
        end, before = self._end_of(exchanges), self._exchange.broadcast + self._gathers.delay
        seconds = end + self._update
        if self._first:  # each simulated iteration has an exchange and an update
            first = float(np.max(self._stages[-1].updates[self._first - 1]))
            seconds = max((last - first) / number + self._update, *(own.seconds for own in exchanges))
        computing = np.zeros(a.size)
        for stage, played in enumerate(self._stages):
            iterations = len(played.updates) if self._first else 1
            computing[a.data_ranks[stage]] = np.broadcast_to(played.busy, a.shares.shape) / iterations
        within, between = self._bytes_sent()
        return Forecast(
            a.plan,
            seconds + before,
            computing,
            max(end - last, 0.0) + before,
            within,
            between,
            peak_memory(a, self._stages),
            np.array(a.cluster.of_ranks(lambda node: node.memory / node.ranks)),
            tuple(a.shares.tolist()),
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
    def _own_updates(self) -> Floats:
        """Seconds by which the update of each data-parallel rank delays its next iteration, if that waits for no other.

        With stages the others' updates may be waited for, and with TREE the root's: then ``_update`` delays all.
        """
        waits = self._a.staging is not None or self._is_tree or self._is_delayed
        return np.zeros(self._a.shares.shape) if waits else self._times_alone.update(0)

    def _after_updates(self, issued: IssuedGradients) -> IssuedGradients:
        return [(segment, moments + self._own_updates) for segment, moments in issued]

    @cached_property
    def _update(self) -> float:
        """Seconds of the update on the slowest rank for which all others wait; with TREE only the root updates."""
        if self._own_updates.any():
            return 0.0
        a = self._a
        parts = [len(a.data_ranks[stage]) if self._exchange.divides else 1 for stage in range(a.stages)]
        updates = [self._times_alone.update(stage) / part for stage, part in enumerate(parts)]
        return max(float(each[0] if self._is_tree else np.max(each)) for each in updates)

    def _bytes_sent(self) -> tuple[float, float]:
        """Return the bytes of gradients and of blobs within hosts and between them."""
        a, found, hosts = self._a, self._exchange.bytes_sent(), self._links.hosts
        itemsizes = self._times.itemsizes
        for each in a.transfers:
            size = count(each.shape) * itemsizes[each.edges[0]] / a.costs.batch * a.passes * (1 + each.diff)
            crosses = hosts[a.data_ranks[each.from_stage]] != hosts[a.data_ranks[each.to_stage]]
            found += np.array([(~crosses * a.shares).sum(), (crosses * a.shares).sum()]) * size
        return float(found[0]), float(found[1])

    def _bars(self, exchanges: Sequence[StageExchange]) -> Iterator[ForecastBar]:
        a, broadcast, gathers = self._a, self._exchange.broadcast, self._gathers
        shift = broadcast + gathers.delay
        if broadcast:
            yield from (ForecastBar(rank, EXCHANGE, "C", 0.0, broadcast) for rank in range(min(a.size, SHOWN_RANKS)))
        for stage, played in enumerate(self._stages):
            intervals = {segment: (start, end) for segment, start, end in exchanges[stage].intervals}
            for place, rank in enumerate(a.data_ranks[stage].tolist()):
                if rank < SHOWN_RANKS:
                    for segment, start, end in gathers.intervals[stage]:
                        yield ForecastBar(rank, EXCHANGE, f"G{segment}", start, end)
                    update = float(self._own_updates[place])
                    yield from _bars_of_rank(rank, place, played.events, intervals, shift, update)


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
