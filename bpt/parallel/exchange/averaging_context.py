"""The context of an exchange of weights: which replicas there are, and how far the run is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor, nn


@dataclass(frozen=True)
class Replicas:
    """The replicas of a net.

    Attributes:
        count: how many there are.
        own: the number of this rank's.
        part: returns the fraction of the batch that the given replicas train; it changes when shares do.
    """

    count: int
    own: int
    part: Callable[[Sequence[int]], float]


@dataclass(frozen=True)
class TrainingProgress:
    """The run whose weights are exchanged.

    Attributes:
        iterations: that are done.
        optimizer_state: returns the moments of a parameter, and its average over iterations if there is one.
    """

    iterations: Callable[[], int]
    optimizer_state: Callable[[nn.Parameter], tuple[Sequence[Tensor], Sequence[Tensor]]]


ALONE = Replicas(1, 0, lambda replicas: 1.0)
