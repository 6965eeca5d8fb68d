"""Cluster: the nodes that virtual clocks play on, with their speeds, memories and links, and the server."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

NEVER = math.inf
WITHOUT_LIMIT = math.inf


@dataclass(frozen=True)
class Node:
    """A computing node.

    Attributes:
        name: of its kind, for reports.
        speed: samples a second that it trains at the start.
        noise: an iteration's time varies: its standard deviation, as a part of it.
        frequency: μ, by which the first batch is divided; ``None``: in proportion to speed.
        latency: seconds, one way.
        bandwidth: bytes a second, each way.
        changes: (seconds after the start, factor): from then on it has this multiple of its
            speed at the start; by rising time.
        fails: seconds after the start at which it dies.
        overhead: seconds of a pass, whatever the number of its samples.
        interference: seconds that computing takes longer for each byte of gradients that is summed meanwhile.
        border, border_overhead: seconds that a sample of a pass takes, and a pass whatever its samples, for each
            segment that the net has beside the first: where gradients leave, chunk by chunk.
        update: seconds of the update of all parameters, once an iteration; 0: it is within the passes.
        ranks: that run on it. As one computing node of the outer layer they count as one; ranks that go in step are
            each as fast as ``speed``, share the node's link and memory, and have ``Cluster.within`` between them.
        cores: for all of its ranks; 0: not known, and enough for messages to travel beside computing.
        memory: bytes, of all its ranks.
        capacity: as a stage, the part of a net's work that it may get at most.
        warm_up: seconds from when it has its first samples until it trains them: a worker of the outer layer lets its
            first passes be like all others, see Worker.
        coding: (codec, as the schema numbers them; seconds): in which each rank, while all do, writes a number of its
            gradients as that codec has it, reads it, and keeps what the code does not tell; only what was measured.
    """

    name: str
    speed: float
    noise: float = 0.0
    frequency: float | None = None
    latency: float = 0.0
    bandwidth: float = WITHOUT_LIMIT
    changes: tuple[tuple[float, float], ...] = ()
    fails: float = NEVER
    overhead: float = 0.0
    update: float = 0.0
    ranks: int = 1
    cores: int = 0
    memory: float = WITHOUT_LIMIT
    capacity: float = WITHOUT_LIMIT
    warm_up: float = 0.0
    coding: tuple[tuple[int, float], ...] = ()
    border: float = 0.0
    border_overhead: float = 0.0
    interference: float = 0.0

    def __post_init__(self) -> None:
        assert 0 < self.speed < math.inf and self.noise >= 0 and self.latency >= 0 and self.bandwidth > 0, self
        assert self.warm_up >= 0 and all(at >= 0 and factor > 0 for at, factor in self.changes), self
        assert list(self.changes) == sorted(self.changes), self

    @property
    def ranks_per_core(self) -> float:
        """The number of ranks that share a core while all of them compute; at least 1."""
        return max(1.0, self.ranks / self.cores) if self.cores else 1.0


@dataclass(frozen=True)
class ServerNode:
    """The main server and parameter server, which are one process.

    Attributes:
        latency: seconds, one way; on top of a node's.
        bandwidth: bytes a second each way, which all nodes share.
        update_rate: bytes of submitted weights that it merges in a second.
    """

    latency: float = 0.0
    bandwidth: float = WITHOUT_LIMIT
    update_rate: float = WITHOUT_LIMIT

    def __post_init__(self) -> None:
        assert self.latency >= 0 and self.bandwidth > 0 and self.update_rate > 0, self


@dataclass(frozen=True)
class IntraNodeLink:
    """The link between two ranks of one node: ``latency`` in seconds, ``bandwidth`` in bytes a second."""

    latency: float = 0.0
    bandwidth: float = WITHOUT_LIMIT


@dataclass(frozen=True)
class NodeLink:
    """The link between each node named ``one`` and each named ``other``, both ways; it replaces their own links.

    ``latency`` is in seconds, ``bandwidth`` in bytes a second.
    """

    one: str
    other: str
    latency: float = 0.0
    bandwidth: float = WITHOUT_LIMIT


_Link = TypeVar("_Link", Node, IntraNodeLink, NodeLink)


@dataclass(frozen=True)
class Cluster:
    """The computing nodes and the server.

    Attributes:
        nodes: m of them; node j is worker j of the schedule.
        colocated: worker 0 is in the server's process, so that nothing travels between them.
        within: what lies between two ranks of a node.
        links: between pairs, or classes, of nodes, for ranks that go in step.
        shared: bytes a second that all messages between nodes have together, while several travel at once.
        waking: seconds from when a rank has something to send, after it has computed, until all send.
        busy_waking: the same while the ranks compute, for each message.
        efficiency: of the library's all-reduce: what it reaches of the bandwidth which a ring has; above 1: more.
        busy_efficiency: what a sum reaches, while ranks compute, of the bandwidth which it has after that.
    """

    nodes: tuple[Node, ...]
    server: ServerNode = ServerNode()
    colocated: bool = False
    within: IntraNodeLink = IntraNodeLink()
    links: tuple[NodeLink, ...] = ()
    shared: float = WITHOUT_LIMIT
    waking: float = 0.0
    efficiency: float = 1.0
    busy_waking: float = 0.0
    busy_efficiency: float = 1.0

    @cached_property
    def hosts(self) -> tuple[int, ...]:
        """The number of the node of each rank, in order."""
        return tuple(number for number, node in enumerate(self.nodes) for _ in range(node.ranks))

    def of_ranks(self, what: Callable[[Node], float]) -> list[float]:
        """Return the value of the node of each rank, in order."""
        return [what(self.nodes[host]) for host in self.hosts]

    def faster(self, bandwidth: float, latency: float = 1.0, within: bool = False) -> Cluster:
        """Return the cluster with the bandwidth between nodes multiplied, and the latency divided, by these factors.

        Args:
            within: also between ranks of a node.
        """

        def link(of: _Link) -> _Link:
            return replace(of, latency=of.latency / latency, bandwidth=of.bandwidth * bandwidth)

        return replace(
            self,
            nodes=tuple(link(node) for node in self.nodes),
            within=link(self.within) if within else self.within,
            links=tuple(link(each) for each in self.links),
            shared=self.shared * bandwidth,
        )

    @property
    def frequencies(self) -> list[float]:
        """The frequency μ of each node; if only some have one, those of the others are derived from their speeds."""
        known = [(node.frequency, node.speed) for node in self.nodes if node.frequency is not None]
        scale = math.fsum(mu for mu, _ in known) / math.fsum(speed for _, speed in known) if known else 1.0
        return [node.speed * scale if node.frequency is None else node.frequency for node in self.nodes]


def equal_nodes(node: Node, count: int, spread: float, generator: random.Random) -> Sequence[Node]:
    """Return ``count`` nodes like ``node``; ``spread`` is the standard deviation of ln speed.

    A frequency that it names is that of all of them.
    """
    if not spread:
        return [node] * count
    return [replace(node, speed=node.speed * math.exp(generator.gauss(0, spread))) for _ in range(count)]
