"""Forecast: how long an iteration of a plan takes on a cluster, what travels, and what each rank holds.

The instructions are those of training (``schedule/``), played on the virtual clock of the pipelines for all replicas at
once: times are arrays with a place for each. Exchanges of gradients, in which replicas meet, follow from when each
segment is ready on the slowest; what is left of them when backward is over is exposed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from bpt.config.plan.run_plan import RunPlan
from bpt.config.proto import bpt_pb2 as pb
from bpt.engine.instructions import Instruction
from bpt.engine.optim.rules import num_moments
from bpt.engine.scheduler import Synchronous
from bpt.graph.layer_spec import count
from bpt.parallel.cluster.cluster import Cluster
from bpt.parallel.pipeline import Pipeline, streams
from bpt.parallel.pipeline.pipeline_clock import WARM
from bpt.parallel.pipeline.simulation import PlayedStage, StageEvent, play
from bpt.parallel.pipeline.simulation.trace import COMPUTE, EXCHANGE
from bpt.perf.forecast.arrangement import Arrangement, Exchanged, Floats, arranged
from bpt.perf.forecast.crowding import oversubscription
from bpt.perf.forecast.earliest import lower_bound
from bpt.perf.forecast.holding import held
from bpt.perf.forecast.latest import expected_max
from bpt.perf.forecast.net_costs import NetCosts
from bpt.perf.forecast.rank_links import Group, RankLinks
from bpt.perf.forecast.sharer_times import SharerTimes

_Exchange, _Pipeline = pb.ParallelParameter, pb.PipelineParameter
STATUS = 40  # bytes of what all ranks must know of an iteration: loss, signals
SHOWN_RANKS = 64  # whose events are kept
ROUNDING = 1e-9  # relative
ROUGHLY = 1e-3  # how well the latest of moments that vary is known

Issued = Sequence[tuple[int, Floats]]
"""Segments whose gradients are to be summed, in this order, and when each sharer has them."""


class ForecastBar(NamedTuple):
    """What a rank did from ``start`` to ``end`` (seconds); ``stream``: as of the clock's events."""

    rank: int
    stream: str
    label: str
    start: float
    end: float


@dataclass(frozen=True)
class Forecast:
    """An iteration of a plan on a cluster.

    Attributes:
        seconds: that it takes, once the run is under way.
        computing: (ranks,) seconds in which each computes.
        exposed: seconds of exchange that backward does not hide.
        within, between: bytes that travel on hosts, and between them.
        held: (ranks,) bytes of parameters, gradients, history and blobs.
        room: (ranks,) bytes that each may have; infinite: without limit.
        shares: samples of each that has some.
        bars: a timeline of the first ranks.
    """

    plan: RunPlan
    seconds: float
    computing: Floats
    exposed: float
    within: float
    between: float
    held: Floats
    room: Floats
    shares: tuple[int, ...]
    bars: tuple[ForecastBar, ...] = field(default=(), repr=False)

    @property
    def fits(self) -> bool:
        """Whether each rank has room for what it holds."""
        return bool((self.held <= self.room).all())

    @property
    def bubble(self) -> float:
        """The part of all ranks' time in which they do not compute."""
        return 1.0 - float(self.computing.mean()) / self.seconds if self.seconds else 0.0

    @property
    def bottleneck(self) -> str:
        """What the iteration's time is made of, the largest part first: "computing", "exchange", "waiting"."""
        parts = {
            "computing": float(self.computing.mean()),
            "exchange": self.exposed,
            "waiting for slower ranks or stages": self.seconds - self.exposed - float(self.computing.mean()),
        }
        return max(parts, key=parts.__getitem__)


def forecast(plan: RunPlan, costs: NetCosts, cluster: Cluster, bars: bool = False) -> Forecast:
    """Return what an iteration of ``plan``, in which ranks go in step, takes on all ranks of ``cluster``.

    Args:
        bars: keep a timeline.

    Raises:
        PrototxtError: the net cannot be placed on ``num_stages``.
    """
    return forecast_of(arranged(plan, costs, cluster), bars)


def forecast_of(arrangement: Arrangement, bars: bool = False) -> Forecast:
    """Return the same of ranks that are arranged already."""
    return Iteration(arrangement).forecast(bars)


@dataclass(frozen=True)
class _Summing:
    """What a stage sums.

    Attributes:
        alone: when its backward passes would be over, if nothing were summed meanwhile.
        ready: when they are.
        exchanges: segments, and from when until when each is summed.
    """

    alone: float
    ready: float
    exchanges: tuple[tuple[int, float, float], ...]

    @property
    def end(self) -> float:
        """Of the last one."""
        return self.exchanges[-1][2] if self.exchanges else 0.0

    @property
    def spent(self) -> float:
        """Seconds for which it sums."""
        return sum(end - start for _, start, end in self.exchanges)


class Iteration:
    """An iteration of ranks that are arranged: how long it takes at least, and what playing it shows."""

    def __init__(self, arrangement: Arrangement) -> None:
        self._a = a = arrangement
        self._exchange = a.plan.parallel_param.exchange
        self._links = RankLinks(a.cluster)
        self._passes = a.passes
        self._delayed = a.plan.parallel_param.is_delayed

    @cached_property
    def least(self) -> float:
        """Seconds that no play of it is faster than; 0: not known."""
        if self._delayed:
            return 0.0
        a = self._a
        rule = a.staging.rule if a.staging else _Pipeline.GPIPE
        found = lower_bound(self._pipeline, rule, self._alone)
        summing = [
            self._summing(stage, *own, bound=True)
            for stage, own in enumerate(zip(found.ready, found.issued, strict=True))
        ]
        least = self._together(summing) + self._updating + self._broadcast
        return least * (1 - (ROUGHLY if a.noise.any() else ROUNDING))

    @cached_property
    def _alone(self) -> SharerTimes:
        """If no other rank of a node computes; without stages all of them do."""
        return SharerTimes(self._a, self._links, self._a.crowd if self._a.staging else np.ones(self._a.size))

    @cached_property
    def _times(self) -> SharerTimes:
        """While as many ranks of a node compute at once as do."""
        a = self._a
        if not a.staging or (a.crowd == 1).all():
            return self._alone
        played = play(self._streams, self._alone, np.maximum)[0]
        return SharerTimes(a, self._links, a.crowd / oversubscription(a, played))

    @cached_property
    def _pipeline(self) -> Pipeline:
        """The stages; or all segments on one, which takes the batch whole."""
        a = self._a
        broadcasts = self._exchange == _Exchange.TREE
        return Pipeline(a.stage_of, a.flows, self._passes, a.micro_batches, broadcasts, gathers=self._alone.gathers)

    @cached_property
    def _stages(self) -> Sequence[PlayedStage]:
        return play(self._streams, self._times, np.maximum)[0]

    @cached_property
    def _from(self) -> int:
        """Of DELAYED, the first iteration that counts, once the pipeline is full: the mean of the later half does."""
        return len(self._stages[0].updates) // 2 if self._delayed else 0

    @cached_property
    def _streams(self) -> Sequence[Sequence[Instruction]]:
        a, pipeline = self._a, self._pipeline
        if not a.staging:
            return [list(Synchronous(len(a.segments), self._passes, pipeline.broadcast).training(0, 0))]
        return streams(a.staging.rule, pipeline, 2 * WARM * len(pipeline.blocks) if self._delayed else 1)

    def forecast(self, bars: bool = False) -> Forecast:
        """Return all that follows of a play."""
        a = self._a
        number = len(self._stages[0].updates) - self._from
        ready = [np.broadcast_to(stage.waited[-1], a.shares.shape) for stage in self._stages]
        summing = [
            self._summing(stage, moments, self._issued(self._stages[stage])) for stage, moments in enumerate(ready)
        ]
        last = max(own.alone for own in summing)
        together = self._together(summing)
        seconds = together + self._updating
        if self._from:  # the exchange and the updates come again each iteration
            first = float(np.max(self._stages[-1].updates[self._from - 1]))
            seconds = max((last - first) / number + self._updating, *(own.spent for own in summing))
        computing = np.zeros(a.size)
        for stage, played in enumerate(self._stages):
            iterations = len(played.updates) if self._from else 1
            computing[a.sharers[stage]] = np.broadcast_to(played.busy, a.shares.shape) / iterations
        within, between = self._travelling()
        return Forecast(
            a.plan,
            seconds + self._broadcast,
            computing,
            max(together - last, 0.0) + self._broadcast,
            within,
            between,
            held(a, self._stages),
            np.array(a.cluster.of_ranks(lambda node: node.memory / node.ranks)),
            tuple(a.shares.tolist()),
            tuple(self._bars(summing)) if bars else (),
        )

    def _together(self, summing: Sequence[_Summing]) -> float:
        """Return when all gradients are summed, and all ranks know of each other."""
        a = self._a
        status = self._links.group(range(a.size)).summed(_Exchange.ALLREDUCE, STATUS)
        known = max(own.ready for own in summing) + (a.cluster.waking + status if a.size > 1 else 0.0)
        return max(known, *(own.end for own in summing))

    @cached_property
    def _updating(self) -> float:
        """Seconds of the update on the slowest that make one: of TREE that is the root."""
        updates = [self._alone.update(stage) for stage in range(self._a.stages)]
        return max(float(each[0] if self._exchange == _Exchange.TREE else np.max(each)) for each in updates)

    @cached_property
    def _groups(self) -> tuple[tuple[Group, Group], ...]:
        """Who sums whole gradients of each stage, and who sums slices."""
        a = self._a
        return tuple(
            (self._links.group(a.sharers[stage]), self._links.group(a.ranks[stage, -1])) for stage in range(a.stages)
        )

    def _took(self, stage: int, segment: int) -> float:
        """Return seconds of the exchange of a segment."""
        what = self._a.exchanged.get(segment)
        if what is None:
            return 0.0
        if self._averaging:
            return self._averaged(stage, what)
        whole, slices = self._groups[stage]
        own = whole.summed(self._exchange, what.whole, what.messages, what.coded, self._everywhere)
        of_slices = what.slices, what.slice_messages, what.coded_slices
        return own + slices.summed(self._exchange, *of_slices, self._everywhere) + self._coding(stage, segment)

    def _coding(self, stage: int, segment: int) -> float:
        """Seconds of these in which the slowest writes gradients as its codec has them, and reads those of others."""
        a, what = self._a, self._a.exchanged.get(segment)
        if what is None or what.coded is None:
            return 0.0
        of_groups = zip(self._groups[stage], (what.whole, what.slices), strict=True)
        coded = sum(nbytes for group, nbytes in of_groups if group.hosts > 1 or (self._everywhere and group.size > 1))
        return float(a.coding[a.sharers[stage]].max()) * coded / a.plan.precision.wire.itemsize

    @property
    def _averaging(self) -> float:
        """Tensors of a parameter's size that averages send, by iteration: weights, and moments that are averaged.
        0: gradients are summed.
        """
        parallel, optim = self._a.plan.parallel_param, self._a.plan.optim
        if self._exchange != _Exchange.LOCAL or self._a.replicas == 1:
            return 0.0
        averaged = parallel.local_param.momentum == pb.LocalParameter.AVERAGE
        moments = num_moments(optim) if averaged else int(optim.averages)
        return (1 + moments) / parallel.local_param.steps

    def _averaged(self, stage: int, what: Exchanged) -> float:
        """Seconds of LOCAL, once replicas update by themselves: of averages by iteration, and what is summed within."""
        whole, slices = self._groups[stage]
        averaged = whole.summed(_Exchange.ALLREDUCE, what.whole) + slices.summed(_Exchange.ALLREDUCE, what.slices)
        within = self._within(stage).summed(_Exchange.ALLREDUCE, what.whole, what.messages)
        return averaged * self._averaging + within

    def _within(self, stage: int) -> Group:
        """Return the ranks that sum whole gradients in each iteration of LOCAL: the peers of a replica, or a host."""
        a = self._a
        if a.plan.parallel_param.local_param.sum_within_hosts:
            host = Counter(self._links.hosts[a.sharers[stage]].tolist()).most_common(1)[0][0]
            return self._links.group([rank for rank in a.sharers[stage] if self._links.hosts[rank] == host])
        return self._links.group(a.ranks[stage, :, 0] if a.is_peer else a.ranks[stage, :1, 0])

    @property
    def _everywhere(self) -> bool:
        return self._a.codes_on_hosts

    @cached_property
    def _broadcast(self) -> float:
        """Seconds in which the weights of the largest stage come back along a tree, as they are."""
        if self._exchange != _Exchange.TREE:
            return 0.0
        spent = [0.0] * self._a.stages
        for segment, what in self._a.exchanged.items():
            stage = self._a.stage_of[segment]
            whole, slices = self._groups[stage]
            spent[stage] += whole.spread(what.whole, what.messages) + slices.spread(what.slices, what.slice_messages)
        return max(spent)

    def _summing(self, stage: int, ready: Floats, issued: Issued, bound: bool = False) -> _Summing:
        """Return what a stage sums, and from when until when.

        Who sends is asleep before the first, or still sends what came before; and while backward goes on, each message
        has to get a core, and takes some of what computing had. Where no core is left for it, backward stands still
        while gradients are coded.

        Args:
            ready: when its backward passes are over, if nothing is summed meanwhile.
            issued: what is to be summed.
            bound: leave out what moments that are too early could make longer.
        """
        a, free, sharers, exchanges = self._a, 0.0, self._a.sharers[stage], []
        waking = 0.0 if bound else a.cluster.waking
        # Of DELAYED many iterations are played, whose mean counts.
        noise = np.zeros(len(sharers)) if self._delayed else a.noise[sharers]
        overlaps, has_cores = self._overlaps(stage), self._has_cores(stage)
        late = np.zeros(len(sharers))
        done = alone = expected_max(ready, noise)
        for segment, moments in issued:
            took = self._took(stage, segment)
            moment = expected_max(moments + late, noise) if overlaps else done
            asleep = waking if free <= moment else 0.0
            if max(free, moment) < done and not bound:
                asleep = max(asleep, self._busy_waking(segment))
            start = max(free, moment) + (asleep if took else 0.0)
            free, before = self._through(start, took, done) if not bound else (start + took, 0.0)
            if took and before:
                late = late + before * a.exchanged[segment].summed * a.interference[sharers]
            if not has_cores:
                late = late + self._coding(stage, segment)
            done = expected_max(ready + late, noise)
            exchanges.append((segment, start, free))
        return _Summing(alone, done, tuple(exchanges))

    def _through(self, start: float, took: float, done: float) -> tuple[float, float]:
        """When a sum is through, and the part of it that goes on while ranks compute, which they do until ``done``."""
        slowly = took / self._a.cluster.busy_efficiency
        if start >= done:
            return start + took, 0.0
        if start + slowly <= done:
            return start + slowly, 1.0
        part = (done - start) / slowly
        return done + took * (1 - part), part

    def _busy_waking(self, segment: int) -> float:
        what = self._a.exchanged.get(segment)
        return self._a.cluster.busy_waking * max(what.messages, what.slice_messages) if what else 0.0

    def _issued(self, played: PlayedStage) -> Issued:
        events = [event for event in played.events if event.stream == EXCHANGE]
        each = len(events) // len(played.updates) if self._from else len(events)
        own = events[len(events) - each :]
        return [(event.instruction.segment, np.asarray(event.start)) for event in own]  # type: ignore[union-attr]

    def _overlaps(self, stage: int) -> bool:
        """Return whether gradients travel beside computing: not by a tree, nor on a host whose cores all compute,
        since there
        they are copied by cores.
        """
        if self._exchange == _Exchange.TREE or self._averaging:
            return False
        whole, _ = self._groups[stage]
        return whole.hosts > 1 or self._has_cores(stage)

    def _has_cores(self, stage: int) -> bool:
        """Return whether each rank has a core beside those that compute."""
        a = self._a
        nodes = [a.cluster.nodes[host] for host in {a.cluster.hosts[rank] for rank in a.sharers[stage]}]
        return all(not node.cores or node.cores >= 2 * node.ranks for node in nodes)

    def _travelling(self) -> tuple[float, float]:
        a, found = self._a, np.zeros(2)
        for segment, what in a.exchanged.items():
            whole, slices = self._groups[a.stage_of[segment]]
            if self._averaging:
                found += self._averaging * np.array(whole.travelling(_Exchange.ALLREDUCE, what.whole))
                found += self._averaging * np.array(slices.travelling(_Exchange.ALLREDUCE, what.slices)) * a.slices
                found += self._summed_within(a.stage_of[segment], what)
                continue
            found += whole.travelling(self._exchange, what.whole, what.coded, self._everywhere)
            of_slices = slices.travelling(self._exchange, what.slices, what.coded_slices, self._everywhere)
            found += np.array(of_slices) * a.slices
        itemsizes = self._times.itemsizes
        for flow in a.flows:
            size = count(flow.shape) * itemsizes[flow.edges[0]] / a.costs.batch * self._passes * (1 + flow.diff)
            senders, receivers = a.sharers[flow.from_stage], a.sharers[flow.to_stage]
            crosses = self._links.hosts[senders] != self._links.hosts[receivers]
            found += np.array([(~crosses * a.shares).sum(), (crosses * a.shares).sum()]) * size
        return float(found[0]), float(found[1])

    def _summed_within(self, stage: int, what: Exchanged) -> Floats:
        """Return bytes on hosts and between them of what LOCAL sums in each iteration."""
        group = self._within(stage)
        each = np.array(group.travelling(_Exchange.ALLREDUCE, what.whole))
        found: Floats = each * (len(self._a.sharers[stage]) / group.size)
        return found

    def _bars(self, summing: Sequence[_Summing]) -> Iterator[ForecastBar]:
        a, broadcast = self._a, self._broadcast
        if broadcast:
            yield from (ForecastBar(rank, EXCHANGE, "C", 0.0, broadcast) for rank in range(min(a.size, SHOWN_RANKS)))
        for stage, played in enumerate(self._stages):
            exchanges = {segment: (start, end) for segment, start, end in summing[stage].exchanges}
            for place, rank in enumerate(a.sharers[stage].tolist()):
                if rank < SHOWN_RANKS:
                    yield from self._of_rank(rank, place, played.events, exchanges, broadcast)

    @staticmethod
    def _of_rank(
        rank: int,
        place: int,
        events: Sequence[StageEvent],
        exchanges: Mapping[int, tuple[float, float]],
        shift: float,
    ) -> Iterator[ForecastBar]:
        def at(moment: object) -> float:
            values = np.atleast_1d(np.asarray(moment, dtype=np.float64))
            return float(values[place if len(values) > 1 else 0]) + shift

        for event in events:
            if event.stream == COMPUTE:
                yield ForecastBar(rank, COMPUTE, event.label, at(event.start), at(event.end))
        for segment, (start, end) in exchanges.items():
            if end > start:
                yield ForecastBar(rank, EXCHANGE, f"X{segment}", start + shift, end + shift)
