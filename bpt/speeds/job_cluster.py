"""The ranks of a job as a cluster that forecasts take: how fast each trains, what room it has, how messages travel."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import fmean, median

import torch

from bpt.comm.base import Communicator
from bpt.device.memory_use import available, obtainable
from bpt.errors import PrototxtError
from bpt.execute.engine_choice import LayoutChoice
from bpt.graph.layer_graph import LayerGraph
from bpt.layers.base import batch_of
from bpt.plan.dividing import is_dividable
from bpt.plan.spec import RunPlan
from bpt.schedule.cluster import WITHOUT_LIMIT, Cluster, Node, NodeLink, Within
from bpt.speeds.links import Link, Measured, measure
from bpt.speeds.step_benchmark import StepBenchmark

SECONDS = 2.0  # for timing one share
_FEWEST, _MOST = 2, 7  # iterations of it, after one that does not count
_LINKS = 0.5  # seconds for all links
OTHERWISE = 1.25  # a link between hosts that is so many times as fast as their nodes say, or as slow, is told by itself


@dataclass(frozen=True)
class RankSpeed:
    """What a rank has measured.

    Attributes:
        times: seconds of a pass by its samples, the largest share first.
        cores: of the host that this rank may use, for each of its threads.
        room: bytes of memory that it can take.
    """

    times: Mapping[int, float]
    cores: int
    room: float


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
    try:
        layout = LayoutChoice(plan.engine)
        for size in dict.fromkeys(sizes):
            world.Barrier()
            work.resize(size)
            work.settle(layout)
            times[size] = _timed(work) / max(plan.optim.iter_size, 1)
    finally:
        work.close()
    return RankSpeed(times, len(os.sched_getaffinity(0)) // max(torch.get_num_threads(), 1), room)


def _timed(work: StepBenchmark) -> float:
    """The median seconds of an iteration."""
    work.run()
    end, found = time.perf_counter() + SECONDS, list[float]()
    while len(found) < _FEWEST or (len(found) < _MOST and time.perf_counter() < end):
        found.append(work.run())
    return median(found)


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
                ranks=number,
                cores=0 if on_gpu else members[0].cores,
                memory=sum(rank.room for rank in members),
            )
        )
        first += number
    return Cluster(tuple(nodes), within=_within(hosts, links), links=_by_pair(hosts, nodes, links), shared=links.shared)


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


def _within(hosts: Sequence[str], links: Measured) -> Within:
    inside = [link for link in links.links if hosts[link.one] == hosts[link.other]]
    if not inside:
        return Within()
    bandwidth = median(link.bandwidth for link in inside)
    if len(set(hosts)) == 1 and links.allreduce:  # what each rank has of it while all exchange, by a ring
        bandwidth = 2 * (len(hosts) - 1) / len(hosts) / links.allreduce
    return Within(median(link.latency for link in inside), bandwidth)


def speed_of(times: Mapping[int, float]) -> tuple[float, float]:
    """Samples a second, and the seconds of a pass beside them: the line through both times."""
    (large, longer), *rest = times.items()
    if not rest or rest[0][1] >= longer:
        return large / longer, 0.0
    small, shorter = rest[0]
    each = min((longer - shorter) / (large - small), longer / large)
    return 1 / each, longer - large * each
