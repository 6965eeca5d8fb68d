"""What a simulated run comes to."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from bpt.parallel.outer.quantities import Durations, NodePassTimes, balance_index, bytes_moved, waiting_time


@dataclass(frozen=True)
class NodeOutcome:
    """One computing node. Its time is that of the run, or that until it died.

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
        """All of its time."""
        return self.computing + self.waiting + self.idle + self.warming


@dataclass(frozen=True)
class SimulationOutcome:
    """A simulated run.

    Attributes:
        seconds: execution time, until the last weights are merged.
        nodes: in order.
        durations: t_j^(i): for each pass the seconds that each node computed (Eq. 8).
        updates: of the global weights.
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

    @cached_property
    def waiting_time(self) -> float:
        """Of all nodes, as SGWU makes it (Eq. 8), in seconds; of an asynchronous run, what SGWU would have waited."""
        return waiting_time(self.durations)

    @cached_property
    def balance(self) -> float:
        """The balance index of the passes: see ``quantities.balance_index``."""
        return balance_index(self.durations)

    @property
    def waited(self) -> float:
        """The part of the run that a node waits for the server, in the mean; idle nodes do not wait."""
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
        """Of an update; 0 if there were none that could be stale."""
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
    """Adds up what happens, for an Outcome."""

    def __init__(self, nodes: int) -> None:
        self.staleness: Counter[int] = Counter()
        self.updates = 0
        self.weight_bytes = 0
        self.data_bytes = 0
        self.events = 0
        self._exchanges = [0] * nodes
        self._times = NodePassTimes(nodes)

    @property
    def exchanges(self) -> int:
        """Of the node with the most."""
        return max(self._exchanges)

    @property
    def durations(self) -> Durations:
        """For each pass the seconds of each node. Passes that nobody ended in a submission are left out."""
        return self._times.durations

    def computed(self, node: int, passes: float, seconds: float) -> None:
        """A node has submitted, ``passes`` after the start; it computed for ``seconds`` since it last did."""
        self._exchanges[node] += 1
        self._times.add(node, passes, seconds, max(math.ceil(passes) - 1, 0))

    def updated(self, staleness: int | None = None) -> None:
        """There is a new version of the global weights."""
        self.updates += 1
        if staleness is not None:
            self.staleness[staleness] += 1
