"""What a worker and the server tell each other in the outer layer. (Weights and samples travel beside.)"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from bpt.balance.allocation import Run


@dataclass(frozen=True)
class Report:
    """What a worker tells when it submits its weights or, under ASGD, gradients.

    Attributes:
        worker: from 0.
        passes: how often it has gone through its own samples by now (local epochs).
        iterations: of training since its last order.
        samples: that it trained since then.
        seconds: that it computed since then.
        waited: seconds from its last submission until it could go on.
        accuracy: Q, of these samples; 1 if the net does not classify or Q is not to count.
        loss: mean over these iterations; NaN if there were none.
    """

    worker: int
    passes: Fraction
    iterations: int = 0
    samples: int = 0
    seconds: float = 0.0
    waited: float = 0.0
    accuracy: float = 1.0
    loss: float = math.nan


@dataclass(frozen=True)
class Order:
    """What a worker is to do next.

    Attributes:
        worker: from 0.
        version: of the newest global weights.
        until: train until so many passes are done, all together, and submit then.
        passes: that it has done, or missed, by now.
        runs: samples that it gets, beside those that it has; a new pass begins with them.
        iterations: submit after so many iterations already (ASGD); 0: only at the end of a pass.
        weights: whether the global weights come with the order; otherwise the worker goes on with its own.
        stop: there is nothing more to train.
        batch: a, the newest batch of samples that has been handed out; for reports.
    """

    worker: int
    version: int
    until: Fraction = Fraction(0)
    passes: Fraction = Fraction(0)
    runs: tuple[Run, ...] = ()
    iterations: int = 0
    weights: bool = True
    stop: bool = False
    batch: int = 0

    def __str__(self) -> str:
        if self.stop:
            return f"stop {self.worker}"
        return f"worker {self.worker}: version {self.version}, to pass {float(self.until):g}, runs {list(self.runs)}"
