"""Best: the best value of a test output so far, which decides what is kept, and when training has brought enough."""

from __future__ import annotations

import math
from typing import NamedTuple


class Best(NamedTuple):
    """The best value of a test output so far.

    Attributes:
        score: the best value.
        iteration: the iterations that led to it.
        last_test: those before the last test.
        tests_since: tests since the best one.
    """

    score: float
    iteration: int
    last_test: int
    tests_since: int = 0

    @property
    def is_new(self) -> bool:
        """Whether the last test was the best one."""
        return self.iteration == self.last_test


def after_test(best: Best | None, score: float, iteration: int, higher: bool, min_delta: float = 0.0) -> Best:
    """Return the best value after a test.

    Args:
        best: before it; ``None``: it is the first.
        score: its value; one that is not finite is never better.
        higher: whether higher ones are better.
        min_delta: a value is better if it is by more than this.
    """
    if best is not None and best.last_test == iteration:
        return best  # repeated, after a rank was lost
    if best is None:
        worst = -math.inf if higher else math.inf
        best = Best(worst, iteration, iteration)
    gain = score - best.score if higher else best.score - score
    if gain > min_delta:
        return Best(score, iteration, iteration)
    return best._replace(last_test=iteration, tests_since=best.tests_since + 1)
