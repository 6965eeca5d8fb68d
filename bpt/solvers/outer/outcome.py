"""Outcome: how a run of the outer layer ended."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Attributes:
        iterations: that it came to.
        terminated: whether SIGTERM has stopped it.
    """

    iterations: int
    terminated: bool
