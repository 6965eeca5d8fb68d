"""The speed-up of data-parallel training (Hybrid, Eq. 13), and its terms.

    ST_m = T_1 / T_m  ·  TS_1 / TS_m  ·  E_1 / E_m

T is the time of a step, TS the steps of an epoch, E the epochs until the net has converged; with one rank and with m.
The paper does not say what TS is; steps an epoch is what makes the product a ratio of training times.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Training:
    """What was measured of a run.

    Attributes:
        step: T, seconds of an iteration.
        steps: TS, iterations of an epoch; need not be whole.
        epochs: E, until it had converged; ``None``: it has not.
    """

    step: float
    steps: float
    epochs: int | None

    def __post_init__(self) -> None:
        assert self.step > 0 and self.steps > 0 and (self.epochs is None or self.epochs > 0), self

    @property
    def seconds(self) -> float:
        """Until it had converged; infinite if it has not."""
        return math.inf if self.epochs is None else self.step * self.steps * self.epochs


@dataclass(frozen=True)
class Terms:
    """The factors of Eq. 13, each above 1 where many ranks are better.

    Attributes:
        step: T_1 / T_m.
        steps: TS_1 / TS_m; the factor by which a batch has grown.
        epochs: E_1 / E_m; NaN unless both runs have converged.
    """

    step: float
    steps: float
    epochs: float

    @property
    def speedup(self) -> float:
        """ST_m; NaN unless both runs have converged."""
        return self.step * self.steps * self.epochs


def terms(one: Training, many: Training) -> Terms:
    """The terms of Eq. 13 of a run on many ranks against one on a single rank."""
    epochs = math.nan if one.epochs is None or many.epochs is None else one.epochs / many.epochs
    return Terms(one.step / many.step, one.steps / many.steps, epochs)


def epochs_until(accuracies: Sequence[float], goal: float) -> int | None:
    """The first epoch, counted from 1, after which the accuracy is ``goal`` at least; ``None``: it never was."""
    return next((epoch for epoch, accuracy in enumerate(accuracies, 1) if accuracy >= goal), None)
