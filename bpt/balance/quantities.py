"""What a run of BPT-CNN reports: waiting time (Eq. 8), balance index, bytes moved (Eq. 11)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

Durations: TypeAlias = Sequence[Sequence[float | None]]
"""t_j^(i): for each iteration the seconds that each node computed; ``None``: the node had left."""


def waiting_times(durations: Durations) -> tuple[float, ...]:
    """How long each node waits for the slowest, over all iterations: Σ_i (max_j' t_j'^(i) - t_j^(i)), in seconds.

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
    """The waiting time of the whole cluster under SGWU, in seconds (Eq. 8)."""
    return math.fsum(waiting_times(durations))


def balance_index(durations: Durations) -> float:
    """The part of the nodes' time that is no waiting, if all wait for the slowest in each iteration; 1: none waits.

    The paper shows an index (Fig. 15 b) and does not define it. Of one iteration this is mean / max of the times, so
    1 / (1 + imbalance); with Eq. 8, it is 1 - waiting time / (m · Σ_i max_j t_j^(i)). It is 1 if nothing took time.
    """
    computing = math.fsum(time for times in durations for time in times if time is not None)
    together = computing + waiting_time(durations)
    return computing / together if together else 1.0


def bytes_moved(weights: int, nodes: int, iterations: int) -> int:
    """2 c_w · m · K: bytes that go to the parameter server and from it in a run (Eq. 11).

    In each iteration each node submits its weights and gets the global ones, under SGWU as under AGWU.

    Args:
        weights: c_w, the bytes of all weights.
        nodes: m.
        iterations: K; K' of Eq. 6 if that many are trained.
    """
    return 2 * weights * nodes * iterations
