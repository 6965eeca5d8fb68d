"""The offsets of the clocks of ranks, and their errors."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from bpt.system.comm.base import Communicator

ROUNDS = 32
Clock = Callable[[], float]


class Offset(NamedTuple):
    """The time of a rank's clock minus that of the first rank's clock.

    Attributes:
        at: the moment of the measurement, on the rank's own clock.
        seconds: the offset.
        error: the largest possible error of the offset in seconds.
    """

    at: float
    seconds: float
    error: float

    def beside(self, other: Offset) -> Offset:
        """Return the offset from a rank whose offset is ``other``, measured at about the same time."""
        return Offset(self.at, self.seconds - other.seconds, self.error + other.error)


SAME = Offset(0.0, 0.0, 0.0)
"""The offset of the first rank."""


def ask(comm: Communicator, rank: int, clock: Clock = time.perf_counter) -> Offset:
    """Return the offset of ``rank``, which calls ``answer``.

    A message asks for that rank's time, and another one brings it back. That rank took it between departure and arrival
    on this rank's clock, so the error is at most half of the round trip. The shortest of ROUNDS round trips counts
    (Cristian, 1989).
    """
    theirs = np.empty(1)
    best = Offset(0.0, 0.0, float("inf"))
    for _ in range(ROUNDS):
        left = clock()
        comm.Send(theirs, rank)
        comm.Recv(theirs, rank)
        error = (clock() - left) / 2
        if error < best.error:
            best = Offset(float(theirs[0]), float(theirs[0]) - left - error, error)
    return best


def answer(comm: Communicator, clock: Clock = time.perf_counter) -> None:
    """Send the time to the first rank when it asks."""
    room = np.empty(1)
    for _ in range(ROUNDS):
        comm.Recv(room, 0)
        room[0] = clock()
        comm.Send(room, 0)


def to_first(offsets: Sequence[Offset], at: float) -> float:
    """Return the time on the first rank's clock for the time ``at`` on the clock of a rank with these ``offsets``.

    Between two offsets the drift of the clock is assumed to be constant.
    """
    first, last = offsets[0], offsets[-1]
    if last.at == first.at:
        return at - first.seconds
    drift = (last.seconds - first.seconds) / (last.at - first.at)
    return at - first.seconds - drift * (at - first.at)
