"""The exchange of gradients on the ranks of a plan: its seconds by segment, and its overlap with backward."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bpt.config.proto import bpt_pb2 as pb
from bpt.engine.optim.rules import num_moments
from bpt.parallel.discrete_event import Resource
from bpt.perf.forecast.arrangement import Arrangement
from bpt.perf.forecast.expected_max import expected_max
from bpt.perf.forecast.rank_links import Floats, Group, RankLinks

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
        self.is_averaging = self._exchange == _Exchange.LOCAL and arrangement.replicas > 1
        self.divides = arrangement.plan.parallel_param.divides_update and arrangement.size > 1

    @cached_property
    def _groups(self) -> tuple[tuple[Group, Group], ...]:
        """The group of ranks that sums whole gradients and the group that sums slices, by stage."""
        a, group = self._a, self._links.group
        return tuple((group(a.data_ranks[stage]), group(a.ranks[stage, -1])) for stage in range(a.stages))

    def seconds(self, stage: int, segment: int) -> float:
        """Return the seconds of the exchange of a segment; with a divided update, of its sum or of its gather."""
        own = self._a.gradients.get(segment)
        if own is None:
            return 0.0
        whole, slices = self._groups[stage]
        if self.divides:
            of_whole = whole.half(self._exchange, own.whole, own.messages)
            return of_whole + slices.half(self._exchange, own.slices, own.slice_messages)
        if self.is_averaging:
            averaged = whole.summed(_Exchange.ALLREDUCE, own.whole) + slices.summed(_Exchange.ALLREDUCE, own.slices)
            within = self._within(stage).summed(_Exchange.ALLREDUCE, own.whole, own.messages)
            return averaged * self._tensors_averaged + within
        of_whole = whole.summed(self._exchange, own.whole, own.messages, own.coded, self._everywhere)
        of_slices = own.slices, own.slice_messages, own.coded_slices
        return of_whole + slices.summed(self._exchange, *of_slices, self._everywhere) + self.coding(stage, segment)

    def coding(self, stage: int, segment: int) -> float:
        """Return the seconds in which the slowest rank codes its gradients and decodes those of others."""
        a, own = self._a, self._a.gradients.get(segment)
        if own is None or own.coded is None:
            return 0.0
        of_groups = zip(self._groups[stage], (own.whole, own.slices), strict=True)
        coded = sum(nbytes for group, nbytes in of_groups if group.hosts > 1 or (self._everywhere and group.size > 1))
        return float(a.speeds.coding[a.data_ranks[stage]].max()) * coded / a.plan.precision.wire.itemsize

    @property
    def _tensors_averaged(self) -> float:
        """Number of tensors per parameter, weights and moments, that LOCAL averages in an iteration, in the mean."""
        parallel, optim = self._a.plan.parallel_param, self._a.plan.optim
        averaged = parallel.local_param.momentum == pb.LocalParameter.AVERAGE
        moments = num_moments(optim) if averaged else int(optim.averages)
        return (1 + moments) / parallel.local_param.steps

    def _within(self, stage: int) -> Group:
        """Return the ranks that sum gradients in each iteration of LOCAL: the peers of a replica, or a host."""
        a, hosts = self._a, self._links.hosts
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
            stage = self._a.stage_of[segment]
            whole, slices = self._groups[stage]
            spent[stage] += whole.spread(own.whole, own.messages) + slices.spread(own.slices, own.slice_messages)
        return max(spent)

    def bytes_sent(self) -> Floats:
        """Return (2,) the bytes that travel within hosts and between them in an iteration."""
        a, found = self._a, np.zeros(2)
        for segment, own in a.gradients.items():
            stage = a.stage_of[segment]
            whole, slices = self._groups[stage]
            if self.is_averaging:
                number = self._tensors_averaged
                found += number * np.array(whole.travelling(_Exchange.ALLREDUCE, own.whole))
                found += number * np.array(slices.travelling(_Exchange.ALLREDUCE, own.slices)) * a.slices
                group = self._within(stage)
                each = np.array(group.travelling(_Exchange.ALLREDUCE, own.whole))
                found += each * (len(a.data_ranks[stage]) / group.size)
            else:
                by_ring = self.divides and self._exchange == _Exchange.ALLREDUCE  # without levels
                way = _Exchange.RING if by_ring else self._exchange
                found += whole.travelling(way, own.whole, own.coded, self._everywhere)
                of_slices = slices.travelling(way, own.slices, own.coded_slices, self._everywhere)
                found += np.array(of_slices) * a.slices
        return found

    def overlaps(self, stage: int) -> bool:
        """Return whether gradients travel while the stage computes.

        They do not with TREE, nor on a single host whose cores all compute, because cores copy the messages there.
        """
        if self._exchange == _Exchange.TREE or self.is_averaging:
            return False
        whole, _ = self._groups[stage]
        return whole.hosts > 1 or self.has_cores(stage)

    def has_cores(self, stage: int) -> bool:
        """Return whether each rank has a core besides those that compute."""
        a = self._a
        nodes = [a.cluster.nodes[host] for host in {a.cluster.hosts[rank] for rank in a.data_ranks[stage]}]
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


class ExchangeOverlap:
    """Simulates the exchange of a stage's gradients during its backward passes.

    A sender sleeps before its first message, or still sends the previous one. While backward passes run, each message
    needs a core and slows computing. If no core is free, backward stops while gradients are coded.
    """

    def __init__(self, arrangement: Arrangement, costs: ExchangeCosts) -> None:
        self._a, self._costs = arrangement, costs
        # With DELAYED the mean over many simulated iterations counts, in which noise cancels out.
        self._is_noisy = not arrangement.plan.parallel_param.is_delayed

    def play(self, stage: int, ready: Floats, issued: IssuedGradients, is_bound: bool = False) -> StageExchange:
        """Simulate the exchange of a stage.

        Args:
            ready: the moment at which its backward passes would end without an exchange.
            issued: the segments to sum, and when their gradients are ready.
            is_bound: whether the moments are lower bounds. The result is a lower bound then, too: effects that could
                grow with earlier moments are left out.
        """
        a, data_ranks = self._a, self._a.data_ranks[stage]
        noise = a.speeds.noise[data_ranks] if self._is_noisy else np.zeros(len(data_ranks))
        overlaps, has_cores = self._costs.overlaps(stage), self._costs.has_cores(stage)
        link, intervals, late = Resource(), [], np.zeros(len(data_ranks))
        done = undisturbed = expected_max(ready, noise)
        for segment, moments in issued:
            seconds = self._costs.seconds(stage, segment)
            moment = expected_max(moments + late, noise) if overlaps else done
            if is_bound:
                start = link.serve(moment, seconds)
            else:
                start = link.start(moment) + (self._asleep(segment, link, moment, done) if seconds else 0.0)
                link.free, part = self._end_of(start, seconds, done)
                if seconds and part:
                    late = late + part * a.gradients[segment].summed * a.speeds.interference[data_ranks]
            if not has_cores:
                late = late + self._costs.coding(stage, segment)
            done = expected_max(ready + late, noise)
            intervals.append((segment, start, link.free))
        return StageExchange(undisturbed, done, tuple(intervals))

    def _asleep(self, segment: int, link: Resource, moment: float, done: float) -> float:
        """Return the seconds from ``moment``, at which a message is ready, until the sender wakes and sends it."""
        cluster, own = self._a.cluster, self._a.gradients.get(segment)
        asleep = cluster.waking if link.free <= moment else 0.0
        if link.start(moment) < done and own:
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
