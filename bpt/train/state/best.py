"""Best: the best value of a test output so far, which selects the best snapshot and can end training."""

from __future__ import annotations

import math
from typing import NamedTuple


class Best(NamedTuple):
    """The best value of a test output so far.

    Attributes:
        score: the best value.
        iteration: number of iterations before it.
        last_test: number of iterations before the last test.
        tests_since: number of tests since the best one.
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
        best: the best value before it; ``None``: this is the first test.
        score: the value of the test; a value that is not finite is never better.
        iteration: number of iterations before the test.
        higher: whether higher values are better.
        min_delta: difference that a better value must exceed.
    """
    if best is not None and best.last_test == iteration:
        return best  # the test is repeated after the loss of a rank
    if best is None:
        worst = -math.inf if higher else math.inf
        best = Best(worst, iteration, iteration)
    gain = score - best.score if higher else best.score - score
    if gain > min_delta:
        return Best(score, iteration, iteration)
    return best._replace(last_test=iteration, tests_since=best.tests_since + 1)
