"""SimulationOutcome: the result of a simulated run."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from bpt.parallel.outer.quantities import Durations, NodePassTimes, balance_index, bytes_moved, waiting_time


@dataclass(frozen=True)
class NodeOutcome:
    """The result of one computing node; its time is that of the run, or until it died.

    Attributes:
        name: of its kind.
        speed: samples a second at the start.
        samples: n_j, allocated; of a node that died, those that it had.
        trained: samples, in all passes together.
        passes: that it did.
        computing, waiting: seconds; waiting is for the server: for messages to travel, for their turn, for others.
        idle: seconds from its end until that of the run.
        died: whether it died.
        warming: seconds in which it got ready before its first iteration.
    """

    name: str
    speed: float
    samples: int
    trained: int
    passes: float
    computing: float
    waiting: float
    idle: float
    died: bool = False
    warming: float = 0.0

    @property
    def seconds(self) -> float:
        """The total time of the node."""
        return self.computing + self.waiting + self.idle + self.warming


@dataclass(frozen=True)
class SimulationOutcome:
    """The result of a simulated run.

    Attributes:
        seconds: execution time, until the last weights are merged.
        nodes: in order.
        durations: t_j^(i): for each pass the seconds that each node computed (Eq. 8).
        updates: of the global weights.
        discarded: submissions that were too stale (``staleness: DISCARD``).
        staleness: number of versions missed → updates; empty for SGWU, which has none.
        exchanges: that the node with the most of them made.
        weight_bytes: that travelled, to the server and from it, as weights or gradients.
        data_bytes: that travelled as samples.
        weights: c_w, the bytes of all weights.
        events: that the clock handled.
    """

    seconds: float
    nodes: tuple[NodeOutcome, ...]
    durations: Durations
    updates: int
    staleness: Mapping[int, int]
    exchanges: int
    weight_bytes: int
    data_bytes: int
    weights: int
    events: int
    discarded: int = 0

    @cached_property
    def waiting_time(self) -> float:
        """The seconds that all nodes wait under SGWU (Eq. 8); for an asynchronous run, what SGWU would wait."""
        return waiting_time(self.durations)

    @cached_property
    def balance(self) -> float:
        """The balance index of the passes, as ``quantities.balance_index`` defines it."""
        return balance_index(self.durations)

    @property
    def waited(self) -> float:
        """The part of the run that a node waits for the server, in the mean; idle time does not count."""
        return self._part([node.waiting for node in self.nodes])

    @property
    def computed(self) -> float:
        """The part of the run that a node computes, in the mean."""
        return self._part([node.computing for node in self.nodes])

    @property
    def idle(self) -> float:
        """The part of the run that a node has nothing left to do, in the mean."""
        return self._part([node.idle for node in self.nodes])

    @property
    def mean_staleness(self) -> float:
        """The mean staleness of an update; 0 if no update could be stale."""
        updates = sum(self.staleness.values())
        return sum(missed * count for missed, count in self.staleness.items()) / updates if updates else 0.0

    @property
    def max_staleness(self) -> int:
        return max(self.staleness, default=0)

    @property
    def predicted_bytes(self) -> int:
        """2 c_w · m · K (Eq. 11), where K is ``exchanges``."""
        return bytes_moved(self.weights, len(self.nodes), self.exchanges)

    def _part(self, seconds: Sequence[float]) -> float:
        together = sum(node.seconds for node in self.nodes)
        return math.fsum(seconds) / together if together else 0.0


class SimulationTotals:
    """Adds up the events of a simulated run for its SimulationOutcome."""

    def __init__(self, nodes: int) -> None:
        self.staleness: Counter[int] = Counter()
        self.updates = 0
        self.discarded = 0
        self.weight_bytes = 0
        self.data_bytes = 0
        self._exchanges = [0] * nodes
        self._times = NodePassTimes(nodes)

    @property
    def exchanges(self) -> int:
        """The number of exchanges of the node with the most."""
        return max(self._exchanges)

    @property
    def durations(self) -> Durations:
        """The seconds of each node in each pass, without passes that no submission ended."""
        return self._times.durations

    def computed(self, node: int, passes: float, seconds: float) -> None:
        """Add a node's submission ``passes`` after the start, and the ``seconds`` computed since its last one."""
        self._exchanges[node] += 1
        self._times.add(node, passes, seconds, max(math.ceil(passes) - 1, 0))

    def updated(self, staleness: int | None = None) -> None:
        """Note a new version of the global weights."""
        self.updates += 1
        if staleness is not None:
            self.staleness[staleness] += 1
