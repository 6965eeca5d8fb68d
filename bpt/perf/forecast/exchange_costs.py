"""The exchange of gradients on the ranks of a plan: its seconds by segment, and its overlap with backward."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bpt.config.plan.replica_layout import Holders
from bpt.config.proto import bpt_pb2 as pb
from bpt.engine.optim.rules import num_moments
from bpt.perf.forecast.arrangement import Arrangement
from bpt.perf.forecast.expected_max import expected_max
from bpt.perf.forecast.rank_links import Floats, Group, Ints, RankLinks

_Exchange = pb.ParallelParameter
STATUS = 40  # bytes of the message with an iteration's loss and signals

IssuedGradients = Sequence[tuple[int, Floats]]
"""The segments in the order of their exchange, and the moments at which each data-parallel rank has the gradients."""


class ExchangeCosts:
    """The seconds and the bytes of the exchange of each segment's gradients.

    Attributes:
        is_averaging: whether replicas update by themselves and average their weights (LOCAL).
        divides: whether ranks divide the update, so that weights are gathered before each iteration.
    """

    def __init__(self, arrangement: Arrangement, links: RankLinks) -> None:
        self._a, self._links = arrangement, links
        self._exchange = arrangement.plan.parallel_param.exchange
        self._everywhere = arrangement.codes_on_hosts
        self._groups: dict[Holders, tuple[Group, Group]] = {}
        self.is_averaging = self._exchange == _Exchange.LOCAL and arrangement.layout.replicas > 1
        self.divides = arrangement.plan.parallel_param.divides_update and arrangement.size > 1

    def holders(self, segment: int) -> Holders:
        """Return the stage that runs a segment, for each kind of replica."""
        return tuple(kind.stage_of[segment] for kind in self._a.kinds)

    def _groups_of(self, segment: int) -> tuple[Group, Group]:
        """Return the group of ranks that sums a segment's whole gradients and the group that sums slices."""
        holders = self.holders(segment)
        if holders not in self._groups:
            slices = [kind.ranks[stage, -1] for kind, stage in zip(self._a.kinds, holders, strict=True)]
            self._groups[holders] = (
                self._links.group(self._ranks_of(holders)),
                self._links.group(np.concatenate(slices)),
            )
        return self._groups[holders]

    def _ranks_of(self, holders: Holders) -> Ints:
        found: Ints = np.concatenate([k.data_ranks[stage] for k, stage in zip(self._a.kinds, holders, strict=True)])
        return found

    def seconds(self, segment: int) -> float:
        """Return the seconds of the exchange of a segment; with a divided update, of its sum or of its gather."""
        own = self._a.gradients.get(segment)
        if own is None:
            return 0.0
        whole, slices = self._groups_of(segment)
        if self.divides:
            of_whole = whole.half(self._exchange, own.whole, own.messages)
            return of_whole + slices.half(self._exchange, own.slices, own.slice_messages)
        if self.is_averaging:
            averaged = whole.summed(_Exchange.ALLREDUCE, own.whole) + slices.summed(_Exchange.ALLREDUCE, own.slices)
            within = self._within(segment).summed(_Exchange.ALLREDUCE, own.whole, own.messages)
            return averaged * self._tensors_averaged + within
        of_whole = whole.summed(self._exchange, own.whole, own.messages, own.coded, self._everywhere)
        of_slices = own.slices, own.slice_messages, own.coded_slices
        return of_whole + slices.summed(self._exchange, *of_slices, self._everywhere) + self.coding(segment)

    def coding(self, segment: int) -> float:
        """Return the seconds in which the slowest rank codes its gradients and decodes those of others."""
        a, own = self._a, self._a.gradients.get(segment)
        if own is None or own.coded is None:
            return 0.0
        of_groups = zip(self._groups_of(segment), (own.whole, own.slices), strict=True)
        coded = sum(nbytes for group, nbytes in of_groups if group.hosts > 1 or (self._everywhere and group.size > 1))
        slowest = float(a.speeds.coding[self._ranks_of(self.holders(segment))].max())
        return slowest * coded / a.plan.precision.wire.itemsize

    @property
    def _tensors_averaged(self) -> float:
        """Number of tensors per parameter, weights and moments, that LOCAL averages in an iteration, in the mean."""
        parallel, optim = self._a.plan.parallel_param, self._a.plan.optim
        averaged = parallel.local_param.momentum == pb.LocalParameter.AVERAGE
        moments = num_moments(optim) if averaged else int(optim.averages)
        return (1 + moments) / parallel.local_param.steps

    def _within(self, segment: int) -> Group:
        """Return the ranks that sum gradients in each iteration of LOCAL: the peers of a replica, or a host."""
        a, hosts = self._a, self._links.hosts
        stage = a.stage_of[segment]
        if a.plan.parallel_param.local_param.sum_within_hosts:
            host = Counter(hosts[a.data_ranks[stage]].tolist()).most_common(1)[0][0]
            return self._links.group([rank for rank in a.data_ranks[stage] if hosts[rank] == host])
        return self._links.group(a.ranks[stage, :, 0] if a.is_peer else a.ranks[stage, :1, 0])

    @cached_property
    def status(self) -> float:
        """Seconds of the message by which all ranks share their loss and signals."""
        status = self._links.group(range(self._a.size)).summed(_Exchange.ALLREDUCE, STATUS)
        return self._a.cluster.waking + status if self._a.size > 1 else 0.0

    @cached_property
    def broadcast(self) -> float:
        """Seconds of the broadcast of the largest stage's weights along a tree, without a codec."""
        if self._exchange != _Exchange.TREE:
            return 0.0
        spent = [0.0] * self._a.stages
        for segment, own in self._a.gradients.items():
            whole, slices = self._groups_of(segment)
            spent[self._a.stage_of[segment]] += whole.spread(own.whole, own.messages) + slices.spread(
                own.slices, own.slice_messages
            )
        return max(spent)

    def bytes_sent(self) -> Floats:
        """Return (2,) the bytes that travel within hosts and between them in an iteration."""
        a, found = self._a, np.zeros(2)
        for segment, own in a.gradients.items():
            whole, slices = self._groups_of(segment)
            if self.is_averaging:
                number = self._tensors_averaged
                found += number * np.array(whole.travelling(_Exchange.ALLREDUCE, own.whole))
                found += number * np.array(slices.travelling(_Exchange.ALLREDUCE, own.slices)) * a.slices
                group = self._within(segment)
                each = np.array(group.travelling(_Exchange.ALLREDUCE, own.whole))
                found += each * (whole.size / group.size)
            else:
                by_ring = self.divides and self._exchange == _Exchange.ALLREDUCE  # without levels
                way = _Exchange.RING if by_ring else self._exchange
                found += whole.travelling(way, own.whole, own.coded, self._everywhere)
                of_slices = slices.travelling(way, own.slices, own.coded_slices, self._everywhere)
                found += np.array(of_slices) * a.slices
        return found

    def overlaps(self, segment: int) -> bool:
        """Return whether a segment's gradients travel while the ranks compute.

        They do not with TREE, nor on a single host whose cores all compute, because cores copy the messages there.
        """
        if self._exchange == _Exchange.TREE or self.is_averaging:
            return False
        whole, _ = self._groups_of(segment)
        return whole.hosts > 1 or self.has_cores(self._ranks_of(self.holders(segment)))

    def has_cores(self, ranks: Ints) -> bool:
        """Return whether each of these ranks has a core besides those that compute."""
        a = self._a
        nodes = [a.cluster.nodes[host] for host in {a.cluster.hosts[rank] for rank in ranks}]
        return all(not node.cores or node.cores >= 2 * node.ranks for node in nodes)


@dataclass(frozen=True)
class StageExchange:
    """The exchange of a stage's gradients on the virtual clock; moments are in seconds.

    Attributes:
        undisturbed: the moment at which the stage's backward passes would end without an exchange.
        ready: the moment at which they end.
        intervals: each segment with the start and the end of its exchange.
    """

    undisturbed: float
    ready: float
    intervals: tuple[tuple[int, float, float], ...]

    @property
    def end(self) -> float:
        """The moment at which the last segment is summed."""
        return self.intervals[-1][2] if self.intervals else 0.0

    @property
    def seconds(self) -> float:
        """Seconds during which gradients are summed."""
        return sum(end - start for _, start, end in self.intervals)


class StageLane:
    """The ranks with one stage of one kind of replica, on the virtual clock; they exchange the same segments in order.

    Args:
        arrangement: that of the kind.
        stage: the stage.
        ready: the moment at which its backward passes would end without an exchange.
        issued: the segments to sum, and when their gradients are ready.
    """

    def __init__(self, arrangement: Arrangement, stage: int, ready: Floats, issued: IssuedGradients) -> None:
        self.kind, self.stage = arrangement.kind, stage
        self.ranks = arrangement.data_ranks[stage]
        self.free = 0.0  # the moment from which on it can exchange
        self.late = np.zeros(len(self.ranks))
        self.queue = deque(issued)
        self._intervals: list[tuple[int, float, float]] = []
        self._ready = ready
        # With DELAYED the mean over many simulated iterations counts, in which noise cancels out.
        is_noisy = not arrangement.plan.parallel_param.is_delayed
        self.noise = arrangement.speeds.noise[self.ranks] if is_noisy else self.late
        self.done = self._undisturbed = expected_max(ready, self.noise)

    def end(self, start: float, end: float, late: Floats | float) -> None:
        """Note that the first segment of the queue was summed, which made computing ``late`` seconds later."""
        segment, _ = self.queue.popleft()
        self.free = end
        self.late = self.late + late
        self.done = expected_max(self._ready + self.late, self.noise)
        self._intervals.append((segment, start, end))

    @property
    def exchange(self) -> StageExchange:
        """The exchange, when the queue is empty."""
        return StageExchange(self._undisturbed, self.done, tuple(self._intervals))


class ExchangeOverlap:
    """Simulates the exchange of all gradients during the backward passes.

    A sender sleeps before its first message, or still sends the previous one. While backward passes run, each message
    needs a core and slows computing. If no core is free, backward stops while gradients are coded.
    """

    def __init__(self, arrangement: Arrangement, costs: ExchangeCosts) -> None:
        self._a, self._costs = arrangement, costs

    def play(self, lanes: Sequence[StageLane], is_bound: bool = False) -> list[StageExchange]:
        """Simulate the exchange of the stages of all kinds of replicas.

        A segment is summed by one lane of each kind together, when it is the next one of all of these.

        Args:
            is_bound: whether the moments are lower bounds. The result is a lower bound then, too: effects that could
                grow with earlier moments are left out.
        """
        of_stage = {(lane.kind, lane.stage): lane for lane in lanes}
        while waiting := [lane for lane in lanes if lane.queue]:
            for lane in waiting:
                while lane.queue:
                    segment = lane.queue[0][0]
                    together = [of_stage[key] for key in enumerate(self._costs.holders(segment))]
                    if any(other.queue[0][0] != segment for other in together):
                        break
                    self._sum(segment, together, is_bound)
        return [lane.exchange for lane in lanes]

    def _sum(self, segment: int, lanes: Sequence[StageLane], is_bound: bool) -> None:
        """Sum the first segment of the lanes' queues."""
        seconds, done = self._costs.seconds(segment), max(lane.done for lane in lanes)
        moment = done
        if self._costs.overlaps(segment):
            moments = np.concatenate([lane.queue[0][1] + lane.late for lane in lanes])
            moment = expected_max(moments, np.concatenate([lane.noise for lane in lanes]))
        free = max(lane.free for lane in lanes)
        start, part = max(free, moment), 0.0
        end = start + seconds
        if not is_bound:
            start += self._asleep(segment, free, moment, done) if seconds else 0.0
            end, part = self._end_of(start, seconds, done)
        summed = self._a.gradients[segment].summed if seconds and part else 0.0
        for lane in lanes:
            late = part * summed * self._a.speeds.interference[lane.ranks]
            if not self._costs.has_cores(lane.ranks):
                late = late + self._costs.coding(segment)
            lane.end(start, end, late)

    def _asleep(self, segment: int, free: float, moment: float, done: float) -> float:
        """Return the seconds from ``moment``, at which a message is ready, until the sender wakes and sends it."""
        cluster, own = self._a.cluster, self._a.gradients.get(segment)
        asleep = cluster.waking if free <= moment else 0.0
        if max(free, moment) < done and own:
            asleep = max(asleep, cluster.busy_waking * max(own.messages, own.slice_messages))
        return asleep

    def _end_of(self, start: float, seconds: float, done: float) -> tuple[float, float]:
        """Return the end of a sum, and the part of it that overlaps with computing, which ends at ``done``."""
        slowly = seconds / self._a.cluster.busy_efficiency
        if start >= done:
            return start + seconds, 0.0
        if start + slowly <= done:
            return start + slowly, 1.0
        part = (done - start) / slowly
        return done + seconds * (1 - part), part
