"""Milestones: the events that a Solver reports to its listeners on every rank: bound, displayed, tested, saved."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from bpt.train.runtime.runtime import Runtime
    from bpt.train.runtime.testing import ScoresOfTest


@dataclass(frozen=True)
class Bound:
    """A milestone: training begins or, after a loss of ranks, continues with ``runtime``."""

    runtime: Runtime


@dataclass(frozen=True)
class Displayed:
    """A milestone: an iteration is shown in the log.

    Attributes:
        loss: the smoothed loss of the log.
        outputs: the outputs of the training net, by blob.
        learning_rate: the learning rate of the iteration.
        iterations, seconds: iterations and seconds since the last displayed one; 0 iterations for the first.
    """

    iteration: int
    loss: float
    outputs: Mapping[str, Tensor]
    learning_rate: float
    iterations: int
    seconds: float


@dataclass(frozen=True)
class Tested:
    """A milestone: a test net has been tested after ``iteration`` iterations.

    Attributes:
        net: the number of the test net.
    """

    iteration: int
    net: int
    scores: ScoresOfTest


@dataclass(frozen=True)
class Saved:
    """A milestone: a snapshot has been written; ``path`` is that of its solver state."""

    iteration: int
    path: str


Milestone = Bound | Displayed | Tested | Saved
Listener = Callable[[Milestone], object]
"""A listener is called on every rank at the same point, so it may make collective calls."""
