"""Milestones: the events that a Solver reports to its listeners on every rank: bound, displayed, tested, saved."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
class WorkerTimes:
    """What a worker of the outer layer has submitted since an iteration was displayed.

    Attributes:
        rank: its rank, or that of its leader.
        host: its host.
        computing, waiting: seconds of the passes that it has submitted, and of waiting for the server.
        samples: the number of samples of these passes.
    """

    rank: int
    host: str
    computing: float
    waiting: float
    samples: int


@dataclass(frozen=True)
class WorkersDisplayed:
    """A milestone: the server of the outer layer shows an iteration in the log.

    Attributes:
        loss: the mean of the workers' newest losses.
        learning_rate: the learning rate of the iteration.
        iterations, seconds: iterations and seconds since the last displayed one.
        workers: the workers that have submitted something.
    """

    iteration: int
    loss: float
    learning_rate: float
    iterations: int
    seconds: float
    workers: Sequence[WorkerTimes]


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


Milestone = Bound | Displayed | WorkersDisplayed | Tested | Saved
Listener = Callable[[Milestone], object]
"""A listener is called on every rank at the same point, so it may make collective calls."""
