"""How long something takes, from repeated measurements, and how well that is known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median, stdev

FINEST = 0.01  # of a time: no measurement counts as better than that, since the next one is made on another day
TRIMMED = 5  # one in so many measurements is left out, at either end

# Student's t: 97.5 % quantiles for 1 … 30 degrees of freedom.
_STUDENT = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip


@dataclass(frozen=True)
class Estimate:
    """A time and its 95 % confidence interval.

    Attributes:
        seconds: the time.
        half_width: half of the interval, in seconds; infinite after a single measurement.
        repeats: how many measurements.
    """

    seconds: float
    half_width: float
    repeats: int

    @property
    def relative(self) -> float:
        """The half-width as a part of the time."""
        return self.half_width / self.seconds

    @property
    def weight(self) -> float:
        """What it counts beside others: 1 / half-width², where no width is below 1 % of the time, nor above it."""
        return min(max(self.half_width, FINEST * self.seconds), self.seconds) ** -2

    def __str__(self) -> str:
        spread = f"{self.relative:.1%}" if math.isfinite(self.half_width) else "?"
        return f"{self.seconds * 1e3:.4g} ms ± {spread}"


def estimate(samples: Sequence[float]) -> Estimate:
    """The trimmed mean of ``samples``, with Student's 95 % interval for it (Tukey and McLaughlin, 1963).

    The lowest and the highest fifth are left out, so that what happens once, such as another program's burst, does
    not count, while the rest is averaged, unlike by a median. Of 3 or 4 samples the median is taken, with the
    (wider) interval of their plain mean; of fewer, the mean.
    """
    ordered = sorted(samples)
    count = len(ordered)
    if count < 5:
        half_width = student(count - 1) * stdev(ordered) / math.sqrt(count) if count > 1 else math.inf
        return Estimate(median(ordered), half_width, count)
    cut = count // TRIMMED
    kept = ordered[cut : count - cut]
    winsorized = [kept[0]] * cut + kept + [kept[-1]] * cut
    error = stdev(winsorized) * math.sqrt((count - 1) / (len(kept) * (len(kept) - 1)))
    return Estimate(fmean(kept), student(len(kept) - 1) * error, count)


def estimate_runs(runs: Sequence[float]) -> Estimate:
    """The estimate from ``runs``, each the mean of equally many iterations, one behind the other.

    Neighbours are also taken together, by 2, 4, …, as long as 5 remain, and the narrowest interval counts: what stops
    a process every now and then, such as a quota of processor time, hits some runs and not others, but longer runs
    alike.
    """
    best = estimate(runs)
    longer = list(runs)
    while len(longer) >= 10:
        longer = [(a + b) / 2 for a, b in zip(longer[::2], longer[1::2], strict=False)]
        best = min(best, estimate(longer), key=lambda one: one.half_width)
    return replace(best, repeats=len(runs))


def student(freedom: int) -> float:
    """The 97.5 % quantile of Student's t; beyond the table within 0.2 %."""
    return _STUDENT[freedom - 1] if freedom <= len(_STUDENT) else 1.96 + 2.4 / freedom
