"""Totals: the time of a rank's instructions and of its calls to other ranks, and the bytes that they send.

Phases are those of CGDP's Table 2 (broadcast, forward, backward, exchange, update), and waiting for other stages of a
pipeline.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from bpt.system.events.event import ActionStep, Event

PHASES = ("broadcast", "forward", "backward", "pipeline", "exchange", "update")


class Key(NamedTuple):
    """The key of a sum: the instruction, the message and the method of a call, as in Event."""

    step: ActionStep | None
    message: str = ""
    method: str = ""


@dataclass
class Traffic:
    """Totals of one method during one instruction, on this rank.

    Bytes are payload by the plain algorithm, each message counted once on either side. A Bcast of n bytes to 3 others
    is 3 n sent by the root and n received by each. A library's own algorithm (trees, rings) moves as much in other
    ways. An Allreduce counts as a ring's: 2 n (P - 1) / P each way.
    """

    calls: int = 0
    sent: int = 0  # bytes
    received: int = 0  # bytes
    seconds: float = 0.0  # in the call: the transfer, and waits for the other ranks

    def __iadd__(self, other: Traffic) -> Traffic:
        self.calls += other.calls
        self.sent += other.sent
        self.received += other.received
        self.seconds += other.seconds
        return self


class Totals:
    """A sink that adds the times of instructions, activities and calls."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # one thread at a time calls a sink, but any thread calls ``take``
        self._totals: dict[Key, Traffic] = {}

    def __call__(self, event: Event) -> None:
        """Add ``event``."""
        key = Key(event.step, event.message, event.method)
        with self._lock:
            total = self._totals.get(key)
            if total is None:
                total = self._totals[key] = Traffic()
            total.calls += event.calls
            total.sent += event.sent
            total.received += event.received
            total.seconds += event.end - event.start

    def take(self) -> dict[Key, Traffic]:
        """Return all sums since the last call. Entries without a method have ``seconds`` only."""
        with self._lock:
            totals, self._totals = self._totals, {}
        return totals


class LinkTotals:
    """A sink that adds the bytes of point-to-point messages that this rank sends, by receiver.

    Attributes:
        sent: bytes by rank of the job.
    """

    def __init__(self) -> None:
        self.sent: dict[int, int] = {}

    def __call__(self, event: Event) -> None:
        """Add ``event``. A sink is called by one thread at a time."""
        if event.peer is not None and event.sent:
            self.sent[event.peer] = self.sent.get(event.peer, 0) + event.sent


def phase_seconds(totals: Mapping[Key, Traffic]) -> dict[str, float]:
    """Return the seconds of each phase's instructions on the training thread.

    ``exchange`` is the exchange's addition to an iteration: packing, and waits that backward did not hide.
    """
    seconds = dict.fromkeys(PHASES, 0.0)
    for (step, _, method), total in totals.items():
        if step is not None and step.phase and not method:
            seconds[step.phase] += total.seconds
    return seconds


def traffic_of(totals: Mapping[Key, Traffic]) -> dict[Key, Traffic]:
    """Return only the sums of calls."""
    return {key: total for key, total in totals.items() if key.method}


def busy_seconds(phases: Mapping[str, float], traffic: Mapping[Key, Traffic]) -> float:
    """Return the seconds of forward, backward and update in ``phases``, without calls to other ranks."""
    own = ("forward", "backward", "update")
    waiting = sum(
        total.seconds for (step, _, method), total in traffic.items() if method and step and step.phase in own
    )
    return sum(phases[phase] for phase in own) - waiting


def total_busy_seconds(totals: Mapping[Key, Traffic]) -> float:
    """Return the seconds of forward, backward and update, without calls to other ranks."""
    return busy_seconds(phase_seconds(totals), totals)
