"""What is simulated: computing nodes, whose speed may change, their links, and the server."""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

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
        changes: (seconds after the start, factor): from then on it has so many times the speed that it had at the
            start; by rising time.
        fails: seconds after the start at which it dies.
    """

    name: str
    speed: float
    noise: float = 0.0
    frequency: float | None = None
    latency: float = 0.0
    bandwidth: float = WITHOUT_LIMIT
    changes: tuple[tuple[float, float], ...] = ()
    fails: float = NEVER

    def __post_init__(self) -> None:
        assert 0 < self.speed < math.inf and self.noise >= 0 and self.latency >= 0 and self.bandwidth > 0, self
        assert all(at >= 0 and factor > 0 for at, factor in self.changes), self
        assert list(self.changes) == sorted(self.changes), self


@dataclass(frozen=True)
class Server:
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
class Cluster:
    """Nodes and the server.

    Attributes:
        nodes: m of them; node j is worker j of the schedule.
        colocated: worker 0 is in the server's process, so that nothing travels between them.
    """

    nodes: tuple[Node, ...]
    server: Server = Server()
    colocated: bool = False

    @property
    def frequencies(self) -> list[float]:
        """μ of each node. If only some nodes have one, that of the others fits their speeds."""
        known = [(node.frequency, node.speed) for node in self.nodes if node.frequency is not None]
        scale = math.fsum(mu for mu, _ in known) / math.fsum(speed for _, speed in known) if known else 1.0
        return [node.speed * scale if node.frequency is None else node.frequency for node in self.nodes]


def alike(node: Node, count: int, spread: float, generator: random.Random) -> Sequence[Node]:
    """``count`` nodes like ``node``, of speeds around its own: the standard deviation of ln speed is ``spread``.

    A frequency that it names is that of all of them.
    """
    if not spread:
        return [node] * count
    return [replace(node, speed=node.speed * math.exp(generator.gauss(0, spread))) for _ in range(count)]


class Pace:
    """The speed of a node over time, as a factor of that at the start. Work is in seconds that it would take then.

    Args:
        changes: (time, factor), by rising time; of several at one time the last counts.
    """

    def __init__(self, changes: Sequence[tuple[float, float]] = ()) -> None:
        self._times = [time for time, _ in changes]
        self._factors = [1.0, *(factor for _, factor in changes)]

    def end(self, start: float, work: float) -> float:
        """When ``work`` that begins at ``start`` is done."""
        for until, factor in self._stretches(start):
            if work <= (until - start) * factor:
                return start + work / factor
            work -= (until - start) * factor
            start = until
        raise AssertionError("the last stretch is without end")

    def done(self, start: float, now: float) -> float:
        """The work done from ``start`` to ``now``."""
        work = 0.0
        for until, factor in self._stretches(start):
            if now <= until:
                return work + (now - start) * factor
            work += (until - start) * factor
            start = until
        raise AssertionError("the last stretch is without end")

    def _stretches(self, start: float) -> Iterator[tuple[float, float]]:
        """(end, factor) of each stretch of constant speed from ``start`` on."""
        for number in range(bisect_right(self._times, start), len(self._times)):
            yield self._times[number], self._factors[number]
        yield math.inf, self._factors[-1]


class Fifo:
    """First come, first served: a link in one direction, or the server's arithmetic.

    Attributes:
        free: from when on nobody is served.
        busy: seconds that it has served, or will, all together.
    """

    def __init__(self) -> None:
        self.free = 0.0
        self.busy = 0.0

    def serve(self, now: float, seconds: float) -> float:
        """Somebody comes at ``now`` and takes ``seconds``; returns when it is its turn. Call in the order of coming."""
        start = max(now, self.free)
        self.free = start + seconds
        self.busy += seconds
        return start
