"""The seconds of messages between the ranks of a cluster, and of the collectives that sum gradients.

A message takes its latency, plus its bytes divided by the bandwidth. The slowest hop determines the time of a
collective. The bandwidth of the library's all-reduce is multiplied by its efficiency:

    RING        2 (P - 1) steps of n / P bytes (Patarasuk and Yuan 2009)
    ALLREDUCE   as libraries do it: the ring for long messages, recursive doubling, log2 P steps of n bytes, for short
                ones; with several ranks on several hosts, a reduction to one rank of each host, an all-reduce of these
                ranks, and a broadcast on each host
    TREE        log2 P steps of n bytes towards the root, and as many back with the weights
    CGDP        the sum within each host, and an all-reduce over the hosts (Le et al., 2018, section 3.1)

Ranks are in the order of the nodes, so a ring crosses each node's link once in each direction. Its hops are between
neighbours, and all of them share the nodes' common bandwidth. In a tree half as many ranks send at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from bpt.config.proto import bpt_pb2 as pb
from bpt.parallel.cluster.cluster import Cluster

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_Exchange = pb.ParallelParameter
_NONE = 0.0, math.inf  # latency and bandwidth of a hop that no message takes


class RankLinks:
    """The links between any two ranks.

    Attributes:
        hosts: (ranks,) the node of each.
        latency, bandwidth: (nodes,) each node's own link: seconds one way, and bytes a second.
        within: the link between two ranks of a node.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.hosts = np.array(cluster.hosts)
        self.latency = np.array([node.latency for node in cluster.nodes])
        self.bandwidth = np.array([node.bandwidth for node in cluster.nodes])
        self.within = cluster.within
        self._shared, self._waking, self._efficiency = cluster.shared, cluster.waking, cluster.efficiency
        # Links by pair: (names, names); NaN for pairs without a link of their own, which the nodes' links describe.
        names = {name: 0 for link in cluster.links for name in (link.one, link.other)}
        names = {name: place for place, name in enumerate(names, start=1)}
        self._names = np.array([names.get(node.name, 0) for node in cluster.nodes]) if names else None
        self._pairs = np.full((2, len(names) + 1, len(names) + 1), np.nan)
        for link in cluster.links:
            one, other = names[link.one], names[link.other]
            self._pairs[:, one, other] = self._pairs[:, other, one] = link.latency, link.bandwidth

    def crossing(self, senders: Ints, receivers: Ints, nbytes: Floats) -> tuple[Floats, Floats]:
        """Return the times of k messages of ``nbytes``, each from one of ``senders`` to its receiver.

        Returns:
            (k,) the seconds for which each keeps its link busy, and (k,) its latency.
        """
        a, b = self.hosts[senders], self.hosts[receivers]
        latency, bandwidth = self._between(a, b)
        bandwidth = np.minimum(bandwidth, self._shared / max(int((a != b).sum()), 1))
        busy: Floats = nbytes / np.where(a == b, self.within.bandwidth, bandwidth)
        late: Floats = np.where(a == b, self.within.latency, latency) + self._waking
        return busy, late

    def group(self, ranks: Sequence[int] | Ints) -> Group:
        """Return the group of ranks that have a collective together."""
        numbers, counts = np.unique(self.hosts[np.asarray(ranks)], return_counts=True)
        several, shared = len(numbers) > 1, int(counts.max()) > 1
        return Group(
            len(ranks),
            len(numbers),
            int(counts.max()),
            self._slowest_hop(numbers, len(numbers)) if several else _NONE,
            self._slowest_hop(numbers, len(numbers) // 2) if several else _NONE,
            (self.within.latency, self.within.bandwidth) if shared else _NONE,
            self._efficiency,
        )

    def _slowest_hop(self, nodes: Ints, at_once: int) -> tuple[float, float]:
        """Return the largest latency and the smallest bandwidth of a ring's hops, if ``at_once`` of them are in use."""
        if self._names is None:  # no pair has a link of its own, so the order of nodes does not matter
            latency, bandwidth = sum(sorted(self.latency[nodes])[-2:]), self.bandwidth[nodes].min()
        else:
            latencies, bandwidths = self._between(nodes, np.roll(nodes, -1))
            latency, bandwidth = latencies.max(), bandwidths.min()
        return float(latency), min(float(bandwidth), self._shared / at_once)

    def _between(self, one: Ints, other: Ints) -> tuple[Floats, Floats]:
        """Return (k,) latency and (k,) bandwidth between each node of ``one`` (k,) and its ``other`` (k,)."""
        latency: Floats = self.latency[one] + self.latency[other]
        bandwidth: Floats = np.minimum(self.bandwidth[one], self.bandwidth[other])
        if self._names is None:
            return latency, bandwidth
        own = self._pairs[:, self._names[one], self._names[other]]
        given = ~np.isnan(own[0])
        return np.where(given, own[0], latency), np.where(given, own[1], bandwidth)


@dataclass(frozen=True)
class Group:
    """Ranks that have a collective together.

    Attributes:
        size: P, the number of ranks.
        hosts: the number of their hosts.
        on_one: the number of ranks on the host that has most of them.
        across, within: latency and bandwidth of the slowest hop between hosts, and within a host.
        on_tree: latency and bandwidth of the slowest hop between hosts in a tree.
        efficiency: efficiency of the library's all-reduce (see Cluster).
    """

    size: int
    hosts: int
    on_one: int
    across: tuple[float, float]
    on_tree: tuple[float, float]
    within: tuple[float, float]
    efficiency: float = 1.0

    @cached_property
    def _hop(self) -> tuple[float, float]:
        return _slower(self.across, self.within)

    @cached_property
    def _leaders(self) -> Group:
        """The group of one rank of each host."""
        return replace(self, size=self.hosts, on_one=1, within=_NONE)

    def _allreduce(self, size: int, nbytes: float, hop: tuple[float, float], messages: int) -> float:
        """Return seconds of the library's all-reduce."""
        if size == 1:
            return 0.0
        slower = hop[0], hop[1] * self.efficiency
        return min(_steps(size, nbytes, slower, messages), _ring(size, nbytes, slower, messages))

    def summed(
        self, exchange: int, nbytes: float, messages: int = 1, coded: float | None = None, everywhere: bool = False
    ) -> float:
        """Return the seconds of an exchange that sums ``nbytes`` of each rank.

        Args:
            exchange: a value of the schema.
            messages: the number of messages in which they travel.
            coded: bytes of the coded messages between hosts; ``None``: there is no codec.
            everywhere: whether the codec is used within hosts, too.
        """
        if self.size == 1 or not nbytes:
            return 0.0
        if coded is not None and (everywhere or self.hosts > 1):
            return self._summed_coded(exchange, nbytes, messages, coded, everywhere and exchange != _Exchange.CGDP)
        match exchange:
            case _Exchange.RING:
                return _ring(self.size, nbytes, self._hop, messages)
            case _Exchange.TREE:
                return self.spread(nbytes, messages)
            case _ if exchange == _Exchange.CGDP or self._has_levels:
                there_and_back = 2 * _steps(self.on_one, nbytes, self.within, messages)
                by_ring = _ring(self.on_one, nbytes, self.within, messages)
                inside = by_ring if exchange == _Exchange.CGDP else there_and_back
                return inside + self._allreduce(self.hosts, nbytes, self.across, messages)
            case _:
                return self._allreduce(self.size, nbytes, self._hop, messages)

    def half(self, exchange: int, nbytes: float, messages: int = 1) -> float:
        """Return the seconds of a reduce-scatter or an all-gather of ``nbytes``: each half of an exchange by rings."""
        if self.size == 1 or not nbytes:
            return 0.0
        if exchange == _Exchange.CGDP:
            inside = _ring(self.on_one, nbytes, self.within, messages)
            return (inside + _ring(self.hosts, nbytes, self.across, messages)) / 2
        efficiency = 1.0 if exchange == _Exchange.RING else self.efficiency
        return _ring(self.size, nbytes, (self._hop[0], self._hop[1] * efficiency), messages) / 2

    def _summed_coded(self, exchange: int, nbytes: float, messages: int, coded: float, everywhere: bool) -> float:
        if not everywhere:
            inside = 2 * _steps(self.on_one, nbytes, self.within, messages)
            return inside + (self._leaders.summed(exchange, coded, messages) if self.hosts > 1 else 0.0)
        by_ring = exchange != _Exchange.TREE
        return _ring(self.size, coded, self._hop, messages) if by_ring else self.spread(coded, messages)

    def spread(self, nbytes: float, messages: int = 1) -> float:
        """Return the seconds of a broadcast, or of a reduction, along a tree."""
        if self.size == 1 or not nbytes:
            return 0.0
        return _steps(self.size, nbytes, _slower(self.on_tree, self.within), messages)

    @property
    def _has_levels(self) -> bool:
        """Whether an ALLREDUCE sums within hosts first, as ``bpt.parallel.exchange.hierarchy`` does."""
        return 1 < self.hosts < self.size

    def travelling(
        self, exchange: int, nbytes: float, coded: float | None = None, everywhere: bool = False
    ) -> tuple[float, float]:
        """Return the bytes that ``summed`` sends over all hops within hosts, and between them."""
        if self.size == 1:
            return 0.0, 0.0
        if coded is not None and (everywhere or self.hosts > 1):
            return self._travelling_coded(exchange, nbytes, coded, everywhere and exchange != _Exchange.CGDP)
        hops = self.hosts if self.hosts > 1 else 0
        if exchange == _Exchange.TREE:
            crossing = self.hosts - 1
            return 2 * nbytes * (self.size - 1 - crossing), 2 * nbytes * crossing
        if exchange == _Exchange.CGDP or (exchange != _Exchange.RING and self._has_levels):
            inside = 2 * nbytes * (self.size - self.hosts)
            return inside, 2 * nbytes * (self.hosts - 1) if hops else 0.0
        each = 2 * nbytes * (self.size - 1) / self.size
        return each * (self.size - hops), each * hops

    def _travelling_coded(self, exchange: int, nbytes: float, coded: float, everywhere: bool) -> tuple[float, float]:
        back = nbytes if exchange == _Exchange.TREE else coded  # weights, or codes of sums
        if not everywhere:
            return 2 * nbytes * (self.size - self.hosts), (coded + back) * (self.hosts - 1)
        if exchange == _Exchange.TREE:
            return (coded + back) * (self.size - self.hosts), (coded + back) * (self.hosts - 1)
        return self.travelling(_Exchange.RING, coded)


def _ring(size: int, nbytes: float, hop: tuple[float, float], messages: int) -> float:
    latency, bandwidth = hop
    return 2 * (size - 1) * (messages * latency + nbytes / size / bandwidth)


def _slower(one: tuple[float, float], other: tuple[float, float]) -> tuple[float, float]:
    """Return the larger latency and the smaller bandwidth of two hops."""
    return max(one[0], other[0]), min(one[1], other[1])


def _steps(size: int, nbytes: float, hop: tuple[float, float], messages: int) -> float:
    """Return the seconds of log2 P steps, each with all bytes."""
    latency, bandwidth = hop
    return math.ceil(math.log2(size)) * (messages * latency + nbytes / bandwidth)
