"""Outcome: how a run of the outer layer ended."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Attributes:
        iterations: that it came to.
        terminated: whether SIGTERM has stopped it.
        short: whether a replay has not come to the end of the run that it repeats.
    """

    iterations: int
    terminated: bool
    short: bool = False
