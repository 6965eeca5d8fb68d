"""The cluster that the measurements of a job's ranks describe."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from statistics import NormalDist, fmean, median

import numpy as np
from numpy.typing import NDArray

from bpt.parallel.cluster.cluster import WITHOUT_LIMIT, Cluster, IntraNodeLink, Node, NodeLink
from bpt.perf.speeds.ping_pong import MeasuredLink, MeasuredLinks

_NORMAL = 1.349  # distance between the quartiles of a normal distribution, in standard deviations
OTHERWISE = 1.25  # factor between a measured link and its nodes' own links from which the cluster lists the link


@dataclass
class Sums:
    """Seconds of sums over all ranks, including this rank's wait for slower ones.

    Attributes:
        short, long: the library's all-reduces of few bytes, and of ``nbytes``, after an iteration.
        ring: the ring's all-reduces of ``nbytes``, after an iteration.
        busy: the library's all-reduces of few bytes during an iteration, one after another; of each iteration the
            mean, because a rank that is late in one of them delays the next.
        busy_ring: the ring's all-reduces of ``nbytes`` during an iteration.
        nbytes: the bytes of a long sum.
    """

    short: list[float] = field(default_factory=list)
    long: list[float] = field(default_factory=list)
    ring: list[float] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)
    busy_ring: list[float] = field(default_factory=list)
    nbytes: int = 0


@dataclass(frozen=True)
class MeasuredRank:
    """The measurements of a rank.

    Attributes:
        times: seconds of a pass without the update, by its samples, the largest share first.
        cores: cores of the host that its ranks may use, for each thread of a rank; at least 1.
        room: bytes of memory that the rank can allocate.
        update: seconds of the update.
        borders: seconds that each segment after the first adds to a pass while gradients are sent, by its samples.
        course: seconds of iterations that all ranks began together, relative to their median, in order.
        interference: seconds by which each byte that is summed during an iteration delays it.
        sums: the seconds of sums.
    """

    times: Mapping[int, float]
    cores: int
    room: float
    update: float = 0.0
    borders: Mapping[int, float] = field(default_factory=dict)
    course: Sequence[float] = ()
    interference: float = 0.0
    sums: Sums = field(default_factory=Sums)


def cluster_of(
    hosts: Sequence[str], ranks: Sequence[MeasuredRank], links: MeasuredLinks, on_gpu: bool = False
) -> Cluster:
    """Return the measured cluster.

    Neighbouring ranks on one host become a node, in which each has their mean speed.

    Args:
        hosts: the host of each rank.
        on_gpu: whether ranks compute on GPUs, so that messages need no cores that compute.
    """
    nodes, first = [], 0
    deviations = _deviations([rank.course for rank in ranks])
    for host, group in groupby(hosts):
        number = len(list(group))
        members = ranks[first : first + number]
        speeds = [speed_of(rank.times) for rank in members]
        borders = [_border_of(rank.borders) for rank in members]
        across = [link for link in links.links if (hosts[link.one] == host) != (hosts[link.other] == host)]
        nodes.append(
            Node(
                host,
                fmean(speed for speed, _ in speeds),
                latency=median(link.latency for link in across) / 2 if across else 0.0,
                bandwidth=max(link.bandwidth for link in across) if across else WITHOUT_LIMIT,
                overhead=fmean(overhead for _, overhead in speeds),
                update=fmean(rank.update for rank in members),
                border=fmean(border for border, _ in borders),
                border_overhead=fmean(overhead for _, overhead in borders),
                noise=_noise(deviations[first : first + number], len(ranks)),
                interference=fmean(rank.interference for rank in members),
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
        shared=min(links.shared, _shared_bandwidth(hosts, ranks, min(node.bandwidth for node in nodes))),
        waking=_waking(ranks, "short", links),
        busy_waking=_waking(ranks, "busy", links),
        efficiency=_efficiency(ranks, links),
        busy_efficiency=_busy_efficiency(ranks),
    )


def _border_of(borders: Mapping[int, float]) -> tuple[float, float]:
    """Return the seconds of a border for each sample, and for a pass of any samples; neither is below 0."""
    if len(borders) < 2:
        return sum(seconds / size for size, seconds in borders.items()), 0.0
    (large, longer), (small, shorter) = borders.items()
    each = min(max(longer - shorter, 0.0) / (large - small), longer / large)
    return each, longer - large * each if longer > shorter else shorter


def _deviations(courses: Sequence[Sequence[float]]) -> NDArray[np.float64]:
    """Return (ranks, iterations) the differences from the mean of all ranks; (ranks, 0) for a single rank."""
    times = np.array(courses)
    return times - times.mean(axis=0) if len(courses) > 1 and times.size else np.zeros((len(courses), 0))


def _noise(deviations: NDArray[np.float64], size: int) -> float:
    """Return the standard deviation of the ranks of a node, relative to an iteration's time.

    For several ranks it explains how late the last one is in the median, because their times are not independent if
    they share cores. For a single rank it follows from quartiles. So a single interruption does not count.

    Args:
        deviations: (ranks, iterations) relative differences from the mean of all ranks.
        size: the number of all ranks.
    """
    number, iterations = deviations.shape
    if iterations < 2:
        return 0.0
    if number == 1:
        low, high = np.quantile(deviations, (0.25, 0.75))
        return float(high - low) / _NORMAL * math.sqrt(size / (size - 1))  # the mean includes the rank itself
    latest = NormalDist().inv_cdf((number - 0.375) / (number + 0.25))  # expected normal maximum (Blom 1958)
    return max(0.0, float(np.median(deviations.max(axis=0)))) / latest


def _shared_bandwidth(hosts: Sequence[str], ranks: Sequence[MeasuredRank], alone: float) -> float:
    """Return the common bandwidth of all hosts, in bytes a second, while they sum after iterations.

    They sum by a ring, whose slowest hops are those between hosts. A host may lack the cores to send and receive at the
    same time at its link's full speed. The result is infinite if each host has its bandwidth ``alone``.
    """
    number, each = len(set(hosts)), _ring_of(ranks)
    if number == 1 or not each:
        return math.inf
    found = number * each
    return found if found < number * alone else math.inf


def _ring_of(ranks: Sequence[MeasuredRank]) -> float:
    """Return the bytes a second over each hop of a ring of all ranks after an iteration; 0 without a measurement."""
    seconds = _last(ranks, "ring") - _last(ranks, "short")
    return 2 * (len(ranks) - 1) / len(ranks) * ranks[0].sums.nbytes / seconds if seconds > 0 else 0.0


def _efficiency(ranks: Sequence[MeasuredRank], links: MeasuredLinks) -> float:
    """Return the efficiency of the library's all-reduce after iterations (see Cluster), without latencies."""
    long, ring = _last(ranks, "long"), _last(ranks, "ring")
    fixed = max(_last(ranks, "short"), 2 * (len(ranks) - 1) * links.latency)
    return (ring - fixed) / (long - fixed) if len(ranks) > 1 and min(ring, long) > fixed > 0 else 1.0


def _busy_efficiency(ranks: Sequence[MeasuredRank]) -> float:
    """Return the efficiency of sums while ranks compute (see Cluster)."""
    alone, busy = _last(ranks, "ring"), _last(ranks, "busy_ring")
    return min(1.0, alone / busy) if busy else 1.0


def _waking(ranks: Sequence[MeasuredRank], kind: str, links: MeasuredLinks) -> float:
    """Return the seconds of short sums of a kind, "short" or "busy", minus the latencies of their steps."""
    return max(0.0, _last(ranks, kind) - math.ceil(math.log2(len(ranks))) * links.latency)


def _last(ranks: Sequence[MeasuredRank], kind: str) -> float:
    """Return the median seconds of sums of a kind, a field of Sums; 0 if there were none.

    The rank with the smallest median counts, because it waits least for others to begin. It is not another rank for
    each sum: a sum that ends early for one rank has not ended for the others.
    """
    found = [getattr(rank.sums, kind) for rank in ranks]
    return min(map(median, found)) if all(found) else 0.0


def _by_pair(hosts: Sequence[str], nodes: Sequence[Node], links: MeasuredLinks) -> tuple[NodeLink, ...]:
    """Return the links between hosts that differ from their nodes' own links."""
    named, found = {node.name: node for node in nodes}, dict[tuple[str, str], list[MeasuredLink]]()
    for link in links.links:
        one, other = sorted((hosts[link.one], hosts[link.other]))
        if one != other:
            found.setdefault((one, other), []).append(link)
    by_pair = []
    for (one, other), measured in found.items():
        latency, bandwidth = median(link.latency for link in measured), max(link.bandwidth for link in measured)
        a, b = named[one], named[other]
        expected = a.latency + b.latency, min(a.bandwidth, b.bandwidth)
        if max(_ratio(latency, expected[0]), _ratio(bandwidth, expected[1])) > OTHERWISE:
            by_pair.append(NodeLink(one, other, latency, bandwidth))
    return tuple(by_pair)


def _ratio(one: float, other: float) -> float:
    return max(one / other, other / one)


def _within(hosts: Sequence[str], ranks: Sequence[MeasuredRank], links: MeasuredLinks) -> IntraNodeLink:
    inside = [link for link in links.links if hosts[link.one] == hosts[link.other]]
    if not inside:
        return IntraNodeLink()
    bandwidth = median(link.bandwidth for link in inside)
    if len(set(hosts)) == 1:  # a rank's part of the link while all exchange: after iterations, or without computing
        alone = 2 * (len(hosts) - 1) / len(hosts) / links.allreduce if links.allreduce else bandwidth
        bandwidth = _ring_of(ranks) or alone
    return IntraNodeLink(median(link.latency for link in inside), bandwidth)


def speed_of(times: Mapping[int, float]) -> tuple[float, float]:
    """Return samples a second, and the seconds of a pass that do not depend on its samples.

    They are a line through all times with the least relative squared errors. Neither is negative.
    """
    (large, longest), *_ = times.items()
    if len(times) == 1:
        return large / longest, 0.0
    sizes, seconds = np.array(list(times), np.float64), np.array(list(times.values()))
    paces = sizes / seconds
    fixed, each = np.linalg.lstsq(np.stack([1 / seconds, paces], axis=1), np.ones(len(times)), rcond=None)[0]
    if each <= 0 or fixed <= 0:
        each, fixed = paces.sum() / (paces**2).sum(), 0.0  # the best line through the origin
    return 1 / float(each), float(fixed)
