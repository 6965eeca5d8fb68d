"""The reported quantities of BPT-CNN: waiting time (Eq. 8), balance index, bytes moved (Eq. 11)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TypeAlias

_ROUNDING = 1e-6  # of a pass

Durations: TypeAlias = Sequence[Sequence[float | None]]
"""t_j^(i): for each iteration the seconds that each node computed; ``None``: the node had left."""


def passes_between(begin: float, end: float) -> Iterator[tuple[int, float, float]]:
    """Yield the passes of a node between ``begin`` and ``end``, each with its part of the time, and of the pass.

    >>> list(passes_between(1, 3)), list(passes_between(0.5, 1)), list(passes_between(2, 2))
    ([(1, 0.5, 1), (2, 0.5, 1)], [(0, 1.0, 0.5)], [(2, 1.0, 0.0)])
    """
    if end <= begin:
        yield math.floor(begin), 1.0, 0.0
        return
    for iteration in range(math.floor(begin), math.ceil(end)):
        part = min(end, iteration + 1) - max(begin, iteration)
        yield iteration, part / (end - begin), part


class NodePassTimes:
    """Adds up the seconds that nodes computed in each pass, from their submissions.

    Args:
        nodes: how many.
    """

    def __init__(self, nodes: int) -> None:
        self._nodes = nodes
        self._done: dict[int, float] = {}
        self._seconds: list[dict[int, float]] = []
        self._parts: list[dict[int, float]] = []

    def add(self, node: int, passes: float, seconds: float, missed: float = 0.0) -> None:
        """Add a node's submission ``passes`` after the start, and the ``seconds`` computed since its last one.

        Args:
            missed: passes before its first.
        """
        begin = self._done.get(node, missed)
        for iteration, time, part in passes_between(begin, passes):
            while len(self._seconds) <= iteration:
                self._seconds.append({})
                self._parts.append({})
            now, parts = self._seconds[iteration], self._parts[iteration]
            now[node] = now.get(node, 0.0) + seconds * time
            parts[node] = parts.get(node, 0.0) + part
        self._done[node] = passes

    @property
    def durations(self) -> list[list[float | None]]:
        """The seconds t_j^(i) of each pass; ``None`` also where a node did less of its last pass than others.

        Passes that no node did are left out.
        """
        table: list[list[float | None]] = []
        for seconds, parts in zip(self._seconds, self._parts, strict=True):
            most = max(parts.values(), default=0.0) - _ROUNDING
            times = [seconds[node] if parts.get(node, -1.0) >= most else None for node in range(self._nodes)]
            if any(time is not None for time in times):
                table.append(times)
        return table


def waiting_times(durations: Durations) -> tuple[float, ...]:
    """Return the seconds that each node waits for the slowest: Σ_i (max_j' t_j'^(i) - t_j^(i)).

    Under SGWU that is what happens; of an asynchronous run, it tells what SGWU would have waited.
    """
    waits: list[list[float]] = [[] for _ in (durations[0] if durations else ())]
    for times in durations:
        slowest = max((time for time in times if time is not None), default=0.0)
        for wait, time in zip(waits, times, strict=True):
            if time is not None:
                wait.append(slowest - time)
    return tuple(map(math.fsum, waits))


def waiting_time(durations: Durations) -> float:
    """Return the waiting time of the whole cluster under SGWU, in seconds (Eq. 8)."""
    return math.fsum(waiting_times(durations))


def balance_index(durations: Durations) -> float:
    """Return the part of the nodes' time without waiting, if all wait for the slowest; 1 if none waits.

    The paper shows an index (Fig. 15 b) and does not define it. Of one iteration this is mean / max of the times, so
    1 / (1 + imbalance); with Eq. 8, it is 1 - waiting time / (m · Σ_i max_j t_j^(i)). It is 1 if nothing took time.
    """
    computing = math.fsum(time for times in durations for time in times if time is not None)
    together = computing + waiting_time(durations)
    return computing / together if together else 1.0


def bytes_moved(weights: int, nodes: int, iterations: int) -> int:
    """Return 2 c_w · m · K, the bytes to and from the parameter server in a run (Eq. 11).

    In each iteration each node submits its weights and gets the global ones, under SGWU as under AGWU.

    Args:
        weights: c_w, the bytes of all weights.
        nodes: m.
        iterations: K; K' of Eq. 6 if that many are trained.
    """
    return 2 * weights * nodes * iterations
