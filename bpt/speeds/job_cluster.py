"""The ranks of a job as a cluster that forecasts take: how fast each trains, what room it has, how messages travel."""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from statistics import fmean, median

import numpy as np
import torch

from bpt.comm.base import Communicator
from bpt.comm.comm_thread import CommThread
from bpt.device.memory_use import available, obtainable
from bpt.errors import PrototxtError
from bpt.execute.engine_choice import LayoutChoice
from bpt.graph.layer_graph import LayerGraph
from bpt.layers.base import batch_of
from bpt.plan.dividing import is_dividable
from bpt.plan.spec import RunPlan
from bpt.schedule.cluster import WITHOUT_LIMIT, Cluster, Node, NodeLink, Within
from bpt.schedule.instructions import Wait
from bpt.speeds.links import AS_ALONE, Link, Measured, measure
from bpt.speeds.step_benchmark import StepBenchmark

SECONDS = 2.0  # for timing one share
_FEWEST, _MOST = 1, 4  # pairs of iterations of it, after two that do not count
SENT = (40, 4 * 10**6)  # bytes: what is but latency, and what is but bandwidth
_LINKS = 0.5  # seconds for all links
OTHERWISE = 1.25  # a link between hosts that is so many times as fast as their nodes say, or as slow, is told by itself


@dataclass(frozen=True)
class RankSpeed:
    """What a rank has measured.

    Attributes:
        times: seconds of a pass by its samples, the largest share first; without the update.
        cores: of the host that this rank may use, for each of its threads.
        room: bytes of memory that it can take.
        sums: of SENT, seconds of each Allreduce of so many bytes after an iteration, as an exchange has it; this rank's
            waiting for slower ones included.
        update: seconds of the update.
    """

    times: Mapping[int, float]
    cores: int
    room: float
    sums: Mapping[int, Sequence[float]] = field(default_factory=dict)
    update: float = 0.0


def measured_cluster(plan: RunPlan, graph: LayerGraph, device: torch.device, world: Communicator) -> Cluster:
    """Time some iterations at an even share of the batch and at half of it on all ranks at once, and their links;
    a collective call.

    Raises:
        PrototxtError: the net has no layer that makes batches.
    """
    hosts = world.allgather(world.host)
    speeds = world.allgather(_speed_here(plan, graph, device, world))
    return cluster_of(hosts, speeds, measure(world, hosts, _LINKS), device.type == "cuda")


def _speed_here(plan: RunPlan, graph: LayerGraph, device: torch.device, world: Communicator) -> RankSpeed:
    batch = batch_of(graph)
    if not batch:
        raise PrototxtError(
            "the training net has no layer that makes batches; there is nothing to divide", plan.origin("net")
        )
    places = world.allgather((world.host, str(device) if device.type == "cuda" else ""))
    sharers = places.count(places[world.rank])
    room = (obtainable(device) if device.type == "cuda" else available()) / sharers
    sizes = [-(-batch // world.size), -(-batch // (2 * world.size))] if is_dividable(graph) else [batch]
    work = StepBenchmark(
        graph,
        plan.training_only(),
        device,
        ranks=world.size,
        sharers=sharers,
        agree=lambda seconds: float(max(world.allgather(seconds))),
    )
    times: dict[int, float] = {}
    updates: list[float] = []
    sums = _Sums(world)
    try:
        layout = LayoutChoice(plan.engine)
        for size in dict.fromkeys(sizes):
            world.Barrier()
            work.resize(size)
            work.settle(layout)
            whole, update = _timed(work, sums, world)
            times[size] = (whole - update) / max(plan.optim.iter_size, 1)
            updates.append(update)
    finally:
        work.close()
        sums.close()
    cores = len(os.sched_getaffinity(0)) // max(torch.get_num_threads(), 1)
    return RankSpeed(times, cores, room, sums.seconds, fmean(updates))


class _Sums:
    """Allreduces after iterations, by a thread as in training."""

    def __init__(self, world: Communicator) -> None:
        self._thread = CommThread(world.Dup())
        self._messages = [np.zeros(nbytes // np.dtype(np.float32).itemsize, np.float32) for nbytes in SENT]
        self.seconds: dict[int, list[float]] = {nbytes: [] for nbytes in SENT}

    def run(self, work: StepBenchmark) -> tuple[float, float]:
        """One message after an iteration, and the other one after another; seconds of it, and of its update."""
        found, updates = [], []
        for message in self._messages:
            found.append(work.run())
            updates.append(work.updating)
            start = time.perf_counter()
            self._thread.submit(partial(self._thread.comm.Allreduce, message), Wait())
            self._thread.wait()
            self.seconds[message.nbytes].append(time.perf_counter() - start)
        return fmean(found), fmean(updates)

    def close(self) -> None:
        """End the thread."""
        self._thread.close()


def _timed(work: StepBenchmark, sums: _Sums, world: Communicator) -> tuple[float, float]:
    """The median seconds of an iteration, and of its update; a collective call."""
    work.run()
    longest = max(world.allgather(work.run()))
    number = min(max(int(SECONDS / longest / len(SENT)), _FEWEST), _MOST)
    whole, updates = zip(*(sums.run(work) for _ in range(number)), strict=True)
    return median(whole), median(updates)


def cluster_of(hosts: Sequence[str], ranks: Sequence[RankSpeed], links: Measured, on_gpu: bool = False) -> Cluster:
    """The cluster that was measured. Neighbours on one host are ranks of one node, as fast as they are in the mean.

    Args:
        hosts: of each rank.
        on_gpu: messages travel beside computing, whatever the cores.
    """
    nodes, first = [], 0
    for host, group in groupby(hosts):
        number = len(list(group))
        members = ranks[first : first + number]
        speeds = [speed_of(rank.times) for rank in members]
        across = [link for link in links.links if (hosts[link.one] == host) != (hosts[link.other] == host)]
        nodes.append(
            Node(
                host,
                fmean(speed for speed, _ in speeds),
                latency=median(link.latency for link in across) / 2 if across else 0.0,
                bandwidth=max(link.bandwidth for link in across) if across else WITHOUT_LIMIT,
                overhead=fmean(overhead for _, overhead in speeds),
                update=fmean(rank.update for rank in members),
                ranks=number,
                cores=0 if on_gpu else members[0].cores,
                memory=sum(rank.room for rank in members),
            )
        )
        first += number
    within = _within(hosts, ranks, links)
    return Cluster(
        tuple(nodes),
        within=within,
        links=_by_pair(hosts, nodes, links),
        shared=min(links.shared, _at_once(hosts, ranks, within, min(node.bandwidth for node in nodes))),
        waking=_waking(ranks, links),
    )


def _at_once(hosts: Sequence[str], ranks: Sequence[RankSpeed], within: Within, alone: float) -> float:
    """Bytes a second that all hosts have together while they sum after iterations, by a ring; not within hosts.

    A host may have no cores to send and receive at once as fast as a link can. Infinite: each has as much as ``alone``.
    """
    by_host = Counter(hosts)
    inside = 2 * math.ceil(math.log2(max(by_host.values()))) / within.bandwidth
    each = (_added(ranks, SENT[1]) - _added(ranks, SENT[0])) / SENT[1] - inside
    if len(by_host) == 1 or each <= 0:
        return math.inf
    found = 2 * (len(by_host) - 1) / each
    return found if found < AS_ALONE * len(by_host) * alone else math.inf


def _waking(ranks: Sequence[RankSpeed], links: Measured) -> float:
    """What a short sum after an iteration takes beside the latencies of its steps."""
    short = _added(ranks, SENT[0])
    steps = math.ceil(math.log2(len(ranks)))
    return max(0.0, short - steps * max((link.latency for link in links.links), default=0.0))


def _added(ranks: Sequence[RankSpeed], nbytes: int) -> float:
    """The median of what sums of so many bytes take on the rank that comes last, who waits for nobody."""
    found = [min(each) for each in zip(*(rank.sums.get(nbytes, ()) for rank in ranks), strict=True)]
    return median(found) if found else 0.0


def _by_pair(hosts: Sequence[str], nodes: Sequence[Node], links: Measured) -> tuple[NodeLink, ...]:
    """What was measured between hosts, where their nodes' own links say something else."""
    named, found = {node.name: node for node in nodes}, dict[tuple[str, str], list[Link]]()
    for link in links.links:
        one, other = sorted((hosts[link.one], hosts[link.other]))
        if one != other:
            found.setdefault((one, other), []).append(link)
    by_pair = []
    for (one, other), measured in found.items():
        latency, bandwidth = median(link.latency for link in measured), max(link.bandwidth for link in measured)
        a, b = named[one], named[other]
        expected = a.latency + b.latency, min(a.bandwidth, b.bandwidth)
        if max(_apart(latency, expected[0]), _apart(bandwidth, expected[1])) > OTHERWISE:
            by_pair.append(NodeLink(one, other, latency, bandwidth))
    return tuple(by_pair)


def _apart(one: float, other: float) -> float:
    return max(one / other, other / one)


def _within(hosts: Sequence[str], ranks: Sequence[RankSpeed], links: Measured) -> Within:
    inside = [link for link in links.links if hosts[link.one] == hosts[link.other]]
    if not inside:
        return Within()
    bandwidth = median(link.bandwidth for link in inside)
    # What each rank has of it while all exchange, by a ring: after iterations, or else where nobody computes.
    each = max(0.0, _added(ranks, SENT[1]) - _added(ranks, SENT[0])) / SENT[1] or links.allreduce
    if len(set(hosts)) == 1 and each:
        bandwidth = 2 * (len(hosts) - 1) / len(hosts) / each
    return Within(median(link.latency for link in inside), bandwidth)


def speed_of(times: Mapping[int, float]) -> tuple[float, float]:
    """Samples a second, and the seconds of a pass beside them: the line through both times."""
    (large, longer), *rest = times.items()
    if not rest or rest[0][1] >= longer:
        return large / longer, 0.0
    small, shorter = rest[0]
    each = min((longer - shorter) / (large - small), longer / large)
    return 1 / each, longer - large * each
