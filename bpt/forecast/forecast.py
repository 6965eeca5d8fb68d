"""Forecast: how long an iteration of a plan takes on a cluster, what travels, and what each rank holds.

The instructions are those of training (``schedule/``), played on the virtual clock of the pipelines for all replicas at
once: times are arrays with a place for each. Exchanges of gradients, in which replicas meet, follow from when each
segment is ready on the slowest; what is left of them when backward is over is exposed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from bpt.forecast.arrangement import Arrangement, Floats, arranged
from bpt.forecast.links import Group, Links
from bpt.graph.autocast import blob_itemsizes
from bpt.graph.spec import count
from bpt.plan.spec import RunPlan
from bpt.predict.costs import Costs
from bpt.predict.pipeline_clock import WARM
from bpt.proto import bpt_pb2 as pb
from bpt.schedule.cluster import Cluster
from bpt.schedule.instructions import Instruction
from bpt.schedule.pipeline import Pipeline, streams
from bpt.schedule.pipeline.simulation import Event, PlayedStage, play
from bpt.schedule.pipeline.simulation.trace import COMPUTE, EXCHANGE
from bpt.schedule.schedulers import Synchronous

_Exchange, _Pipeline = pb.ParallelParameter, pb.PipelineParameter
STATUS = 40  # bytes of what all ranks must know of an iteration: loss, signals
SHOWN_RANKS = 64  # whose events are kept


class Bar(NamedTuple):
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
    bars: tuple[Bar, ...] = field(default=(), repr=False)

    @property
    def fits(self) -> bool:
        """Whether each rank has room for what it holds."""
        return bool((self.held <= self.room).all())

    @property
    def bubble(self) -> float:
        """The part of all ranks' time in which they do not compute."""
        return 1.0 - float(self.computing.mean()) / self.seconds if self.seconds else 0.0

    @property
    def binds(self) -> str:
        """What the iteration's time is made of, the largest part first: "computing", "exchange", "waiting"."""
        parts = {
            "computing": float(self.computing.mean()),
            "exchange": self.exposed,
            "waiting for slower ranks or stages": self.seconds - self.exposed - float(self.computing.mean()),
        }
        return max(parts, key=parts.__getitem__)


def forecast(plan: RunPlan, costs: Costs, cluster: Cluster, bars: bool = False) -> Forecast:
    """What an iteration of ``plan``, in which ranks go in step, takes on all ranks of ``cluster``.

    Args:
        bars: keep a timeline.

    Raises:
        PrototxtError: the net cannot be placed on ``num_stages``.
    """
    return forecast_of(arranged(plan, costs, cluster), bars)


def forecast_of(arrangement: Arrangement, bars: bool = False) -> Forecast:
    """The same of ranks that are arranged already."""
    return _Play(arrangement).result(bars)


class _Play:
    """Plays an iteration."""

    def __init__(self, arrangement: Arrangement) -> None:
        self._a = a = arrangement
        self._exchange = a.plan.parallel_param.exchange
        self._links = Links(a.cluster)
        self._passes = max(a.plan.optim.iter_size, 1)
        self._times = _Times(a, self._links)
        delayed = a.plan.parallel_param.is_delayed
        self._stages, _ = play(self._streams(delayed), self._times, np.maximum)
        # Of DELAYED, an iteration once the pipeline is full: the mean of the later half.
        self._from = len(self._stages[0].updates) // 2 if delayed else 0

    def _streams(self, delayed: bool) -> Sequence[Sequence[Instruction]]:
        a, broadcasts = self._a, self._exchange == _Exchange.TREE
        if not a.staging:
            return [list(Synchronous(len(a.segments), self._passes, broadcasts).training(0, 0))]
        pipeline = Pipeline(
            a.stage_of,
            a.flows,
            self._passes,
            a.micro_batches,
            broadcasts,
            gathers=frozenset(s.index for s in a.segments if s.start in a.staging.gathers),
        )
        return streams(a.staging.rule, pipeline, 2 * WARM * len(pipeline.blocks) if delayed else 1)

    def result(self, bars: bool) -> Forecast:
        """All that follows."""
        a = self._a
        number = len(self._stages[0].updates) - self._from
        ready = [np.broadcast_to(stage.waited[-1], a.shares.shape) for stage in self._stages]
        last = max(float(each.max()) for each in ready)
        summed, spent = self._summed(ready)
        status = self._links.group(range(a.size)).summed(_Exchange.ALLREDUCE, STATUS)
        together = max(summed, last + (a.cluster.waking + status if a.size > 1 else 0.0))
        updating = max(float(np.max(self._times.update(stage))) for stage in range(a.stages))
        seconds = together + updating
        if self._from:  # the exchange and the updates come again each iteration
            first = float(np.max(self._stages[-1].updates[self._from - 1]))
            seconds = max((last - first) / number + updating, spent)
        broadcast = self._broadcast() if self._exchange == _Exchange.TREE else 0.0
        computing = np.zeros(a.size)
        for stage, played in enumerate(self._stages):
            iterations = len(played.updates) if self._from else 1
            computing[a.sharers[stage]] = np.broadcast_to(played.busy, a.shares.shape) / iterations
        within, between = self._travelling()
        return Forecast(
            a.plan,
            seconds + broadcast,
            computing,
            max(together - last, 0.0) + broadcast,
            within,
            between,
            self._held(),
            np.array([a.cluster.nodes[host].memory / a.cluster.nodes[host].ranks for host in a.cluster.hosts]),
            tuple(a.shares.tolist()),
            tuple(self._bars(broadcast)) if bars else (),
        )

    @cached_property
    def _groups(self) -> tuple[tuple[Group, Group], ...]:
        """Who sums whole gradients of each stage, and who sums slices."""
        a = self._a
        return tuple(
            (self._links.group(a.sharers[stage]), self._links.group(a.ranks[stage, -1])) for stage in range(a.stages)
        )

    def _took(self, stage: int, segment: int) -> float:
        """Seconds of the exchange of a segment."""
        what = self._a.exchanged.get(segment)
        if what is None:
            return 0.0
        whole, slices = self._groups[stage]
        return whole.summed(self._exchange, what.whole, what.messages, what.coded, self._everywhere) + slices.summed(
            self._exchange, what.slices, what.slice_messages, what.coded_slices, self._everywhere
        )

    @property
    def _everywhere(self) -> bool:
        return self._a.plan.parallel_param.compression_param.links == pb.CompressionParameter.ALL

    def _broadcast(self) -> float:
        """Seconds in which the weights of the largest stage come back along a tree, as they are."""
        spent = [0.0] * self._a.stages
        for segment, what in self._a.exchanged.items():
            stage = self._a.stage_of[segment]
            whole, slices = self._groups[stage]
            spent[stage] += whole.spread(what.whole, what.messages) + slices.spread(what.slices, what.slice_messages)
        return max(spent)

    def _summed(self, ready: Sequence[Floats]) -> tuple[float, float]:
        """When all gradients of the last iteration are summed, and for how long the busiest stage sums."""
        end, most = 0.0, 0.0
        for stage, played in enumerate(self._stages):
            issued = self._issued(played, float(ready[stage].max()), stage)
            free = spent = 0.0
            for segment, moment in issued:
                took = self._took(stage, segment)
                free = self._begun(free, moment, took) + took
                spent += took
            end, most = max(end, free), max(most, spent)
        return end, most

    def _begun(self, free: float, moment: float, took: float) -> float:
        """When an exchange begins that is issued at ``moment``: who sends is asleep then, or ``free`` later."""
        return free if free > moment else moment + (self._a.cluster.waking if took else 0.0)

    def _issued(self, played: PlayedStage, done: float, stage: int) -> Iterator[tuple[int, float]]:
        """The segments whose gradients are to be summed, and when the last rank has them."""
        events = [event for event in played.events if event.stream == EXCHANGE]
        each = len(events) // len(played.updates) if self._from else len(events)
        for event in events[len(events) - each :]:
            segment = event.instruction.segment  # type: ignore[union-attr]
            yield segment, float(np.max(event.start)) if self._overlaps(stage) else done

    def _overlaps(self, stage: int) -> bool:
        """Whether gradients travel beside computing: not by a tree, nor on a host whose cores all compute, since there
        they are copied by cores."""
        a = self._a
        if self._exchange == _Exchange.TREE:
            return False
        whole, _ = self._groups[stage]
        nodes = [a.cluster.nodes[host] for host in {a.cluster.hosts[rank] for rank in a.sharers[stage]}]
        return whole.hosts > 1 or all(not node.cores or node.cores >= 2 * node.ranks for node in nodes)

    def _travelling(self) -> tuple[float, float]:
        a, found = self._a, np.zeros(2)
        for segment, what in a.exchanged.items():
            whole, slices = self._groups[a.stage_of[segment]]
            found += whole.travelling(self._exchange, what.whole, what.coded, self._everywhere)
            of_slices = slices.travelling(self._exchange, what.slices, what.coded_slices, self._everywhere)
            found += np.array(of_slices) * a.slices
        itemsizes = blob_itemsizes(a.graph, a.plan.precision)
        for flow in a.flows:
            size = count(flow.shape) * itemsizes[flow.edges[0]] / a.costs.batch * self._passes * (1 + flow.diff)
            senders, receivers = a.sharers[flow.from_stage], a.sharers[flow.to_stage]
            crosses = self._links.hosts[senders] != self._links.hosts[receivers]
            found += np.array([(~crosses * a.shares).sum(), (crosses * a.shares).sum()]) * size
        return float(found[0]), float(found[1])

    def _held(self) -> Floats:
        """Bytes on each rank: parameters, gradients and history; blobs of as many micro-batches as are under way."""
        a, found = self._a, np.zeros(self._a.size)
        for stage, played in enumerate(self._stages):
            blobs = 0.0
            for segment, of in zip(a.segments, a.stage_of, strict=True):
                if of == stage:
                    size = sum(cost.activations for cost in a.costs.layers[segment.start : segment.end])
                    blobs += size * played.peaks.get(segment.index, 1) / (a.micro_batches * a.costs.batch)
            if len(played.peaks) and self._passes > 1 and not a.staging:
                blobs /= max(played.peaks.values())  # a pass is over before the next one
            found[a.ranks[stage].ravel()] = a.held[stage]
            found[a.sharers[stage]] += blobs * a.shares
        return found

    def _bars(self, broadcast: float) -> Iterator[Bar]:
        a = self._a
        if broadcast:
            yield from (Bar(rank, EXCHANGE, "C", 0.0, broadcast) for rank in range(min(a.size, SHOWN_RANKS)))
        for stage, played in enumerate(self._stages):
            ready = float(np.max(played.waited[-1]))
            free = 0.0
            exchanges = {}
            for segment, moment in self._issued(played, ready, stage):
                start = self._begun(free, moment, self._took(stage, segment))
                free = start + self._took(stage, segment)
                exchanges[segment] = start, free
            for place, rank in enumerate(a.sharers[stage].tolist()):
                if rank < SHOWN_RANKS:
                    yield from self._of_rank(rank, place, played.events, exchanges, broadcast)

    @staticmethod
    def _of_rank(
        rank: int,
        place: int,
        events: Sequence[Event],
        exchanges: Mapping[int, tuple[float, float]],
        shift: float,
    ) -> Iterator[Bar]:
        def at(moment: object) -> float:
            values = np.atleast_1d(np.asarray(moment, dtype=np.float64))
            return float(values[place if len(values) > 1 else 0]) + shift

        for event in events:
            if event.stream == COMPUTE:
                yield Bar(rank, COMPUTE, event.label, at(event.start), at(event.end))
        for segment, (start, end) in exchanges.items():
            if end > start:
                yield Bar(rank, EXCHANGE, f"X{segment}", start + shift, end + shift)


class _Times:
    """What segments and messages take, for all sharers at once: see ``schedule.pipeline.simulation.Times``."""

    def __init__(self, arrangement: Arrangement, links: Links) -> None:
        self._a = a = arrangement
        self._links = links
        self._share = a.shares.astype(np.float64)
        micro = self._share / a.micro_batches
        # (stages, sharers): seconds of the whole net for a micro-batch, and for all of them in one.
        speeds, overheads = a.speeds[a.sharers], a.overheads[a.sharers]
        self._micro = np.where(micro > 0, overheads + micro / speeds, 0.0)
        self._whole = np.where(micro > 0, overheads + self._share / speeds, 0.0)
        self._itemsizes = blob_itemsizes(a.graph, a.plan.precision)
        gathers = a.staging.gathers if a.staging else frozenset()
        self._gathers = {segment.index for segment in a.segments if segment.start in gathers}

    def forward(self, stage: int, segment: int) -> Floats:
        """See Times."""
        return self._pass(stage, segment, self._a.costs.forward)

    def backward(self, stage: int, segment: int) -> Floats:
        """See Times."""
        return self._pass(stage, segment, self._a.costs.backward)

    def transfer(self, flow: int, diff: bool) -> Floats:
        """See Times."""
        a, what = self._a, self._a.flows[flow]
        each = count(what.shape) * self._itemsizes[what.edges[0]] / a.costs.batch / a.micro_batches
        ends = a.sharers[what.from_stage], a.sharers[what.to_stage]
        return self._links.seconds(*(ends[::-1] if diff else ends), each * self._share)

    def exchange(self, stage: int, segment: int) -> float:
        """See Times; here replicas meet, which no clock of a pipeline knows."""
        return 0.0

    def update(self, stage: int) -> Floats:
        """See Times."""
        a = self._a
        passes = max(a.plan.optim.iter_size, 1)
        whole = passes * a.costs.update / a.costs.work * a.costs.batch / a.speeds[a.sharers[stage]]
        found: Floats = whole * (a.held[stage] / (sum(a.held) or 1.0))
        return found

    def _pass(self, stage: int, segment: int, parts: Floats) -> Floats:
        a, span = self._a, self._a.segments[segment]
        part = float(parts[span.start : span.end].sum())
        share = self._whole if segment in self._gathers else self._micro
        block = a.blocks.get(segment)
        own: Floats = part * share[stage]
        if block is None:
            return own
        return self._split(stage, own) + self._traded(stage, segment)

    def _split(self, stage: int, own: Floats) -> Floats:
        """Split layers: among peers each does a slice for all of its group's samples, as much as if it did its own
        whole; slaves do them in the master's place."""
        a = self._a
        if a.is_peer:
            return own
        slaves = a.speeds[a.ranks[stage, 1:]].min(axis=0)
        found: Floats = own * a.speeds[a.sharers[stage]] / slaves / (a.shards - 1)
        return found

    def _traded(self, stage: int, segment: int) -> Floats:
        """What shards send each other of a block's bottom and top, one way."""
        a, block = self._a, self._a.blocks[segment]
        bottom = count(a.graph.edges[block.bottom].shape[1:]) * (not block.takes_slices)
        top = block.features * (not block.keeps_slices)
        itemsize = self._itemsizes[block.bottom]
        group = self._links.group(a.ranks[stage, :, 0])
        samples = self._share / a.micro_batches
        if a.is_peer:
            each = samples * (bottom + top) * itemsize * (a.shards - 1)
        else:
            each = samples * (bottom * (a.shards - 1) + top) * itemsize
        latency, bandwidth = max(group.across[0], group.within[0]), min(group.across[1], group.within[1])
        found: Floats = 2 * latency + each / bandwidth
        return found
