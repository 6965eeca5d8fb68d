"""How far the clocks of ranks are apart, and how well that is known."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from bpt.system.comm.base import Communicator

ROUNDS = 32
Clock = Callable[[], float]


class Offset(NamedTuple):
    """What one rank's clock shows more than the first rank's.

    Attributes:
        at: when, on the rank's own clock.
        seconds: how much more; in truth it is within ``error`` of that.
    """

    at: float
    seconds: float
    error: float

    def beside(self, other: Offset) -> Offset:
        """Return what the clock shows more than that of the rank with ``other``, at about the same time."""
        return Offset(self.at, self.seconds - other.seconds, self.error + other.error)


SAME = Offset(0.0, 0.0, 0.0)
"""The first rank's own."""


def ask(comm: Communicator, rank: int, clock: Clock = time.perf_counter) -> Offset:
    """Return the offset of ``rank``, which ``answer``s meanwhile.

    A message goes there and another one back, with that rank's time, which lies between those of leaving and arriving
    here: so it is known to half of the round trip. Of ROUNDS of them the shortest counts (Cristian, 1989).
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
    """Tell the first rank the time, when it asks."""
    room = np.empty(1)
    for _ in range(ROUNDS):
        comm.Recv(room, 0)
        room[0] = clock()
        comm.Send(room, 0)


def to_first(offsets: Sequence[Offset], at: float) -> float:
    """Return the time of the first rank's clock when that of a rank with these ``offsets`` shows ``at``.

    Between two offsets a clock is taken to drift evenly.
    """
    first, last = offsets[0], offsets[-1]
    if last.at == first.at:
        return at - first.seconds
    drift = (last.seconds - first.seconds) / (last.at - first.at)
    return at - first.seconds - drift * (at - first.at)
