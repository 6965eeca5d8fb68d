"""SpeedFunction: how long a rank takes for a batch of any size, from sizes that were measured.

And which sizes are worth a measurement, how well times are known that were measured repeatedly, and how large a batch
fits into memory.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from statistics import fmean, median, stdev
from typing import Protocol

FINEST = 0.01  # of a time: no measurement counts as better than that, since the next one is made on another day
TRIMMED = 5  # one in five measurements is left out, at either end

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
        """The half-width of the interval, relative to the time."""
        return self.half_width / self.seconds

    @property
    def weight(self) -> float:
        """The weight in a fit: 1 / half-width², where the width counts as 1 % to 100 % of the time."""
        return min(max(self.half_width, FINEST * self.seconds), self.seconds) ** -2

    def __str__(self) -> str:
        spread = f"{self.relative:.1%}" if math.isfinite(self.half_width) else "?"
        return f"{self.seconds * 1e3:.4g} ms ± {spread}"


def estimate(samples: Sequence[float]) -> Estimate:
    """Return the trimmed mean of ``samples``, with Student's 95 % interval for it (Tukey and McLaughlin, 1963).

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
    """Return the estimate from ``runs``, each the mean of equally many iterations, one behind the other.

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
    """Return the 97.5 % quantile of Student's t; beyond the table within 0.2 %."""
    return _STUDENT[freedom - 1] if freedom <= len(_STUDENT) else 1.96 + 2.4 / freedom


class TimeFunction(Protocol):
    """A time by the number of samples, which never falls; ``cap`` is the largest number, ``None``: no limit."""

    @property
    def cap(self) -> int | None: ...

    def seconds(self, size: int) -> float: ...


@dataclass(frozen=True)
class SpeedFunction:
    """The time t(x) of a batch of x samples, and the speed s(x) = x / t(x) (StaticLB, §3; FuPerMod).

    t is 0 at 0, straight between the measured sizes, and never falls. Beyond the largest of them it continues as from
    the last one of at most half that size or, if it was level there, by the mean time of a sample.

    Attributes:
        sizes: 0 and the measured sizes, rising.
        times: seconds for each of them, 0 first, never falling.
        cap: the largest batch that fits into memory; ``None``: no limit.
    """

    sizes: tuple[int, ...]
    times: tuple[float, ...]
    cap: int | None = None

    @classmethod
    def fitted(
        cls, points: Iterable[tuple[int, float]], cap: int | None = None, weights: Mapping[int, float] | None = None
    ) -> SpeedFunction:
        """Return the function nearest to measured ``(size, seconds)``: at least one, sizes from 1, in any order.

        Where times fall though the size rises, the least change that mends this (in the sum of squares) is made,
        by pooling neighbours. Taking the highest time so far instead would let one measurement that came out too
        long stand for all larger sizes.

        Args:
            cap: see the class.
            weights: size → how much its square counts; by default all alike. 1 / variance gives the likeliest function.
        """
        ordered = sorted(points)
        assert ordered, "nothing was measured"
        assert all(time > 0 for _, time in ordered), ordered
        sizes = [0, *(size for size, _ in ordered)]
        assert all(a < b for a, b in pairwise(sizes)), sizes
        times = pooled([time for _, time in ordered], [weights[size] for size, _ in ordered] if weights else None)
        return cls(tuple(sizes), (0.0, *times), cap)

    def seconds(self, size: int) -> float:
        """Return t(x), the seconds for a batch of ``size``."""
        sizes, times = self.sizes, self.times
        after = bisect_right(sizes, size)
        if after == len(sizes):
            return times[-1] + (size - sizes[-1]) * self._last_slope
        low, high = times[after - 1], times[after]
        slope = (high - low) / (sizes[after] - sizes[after - 1])
        return min(high, low + (size - sizes[after - 1]) * slope)  # rounding must not lift it above the next point

    def speed(self, size: int) -> float:
        """Return s(x) = x / t(x), the samples a second in batches of ``size``, which is at least 1."""
        return size / self.seconds(size)

    @property
    def largest(self) -> int:
        """The largest size that was measured."""
        return self.sizes[-1]

    def scaled(self, factor: float) -> SpeedFunction:
        """Return this function with ``factor`` times the seconds."""
        return replace(self, times=tuple(factor * time for time in self.times))

    @cached_property
    def _last_slope(self) -> float:
        # Not from the last but one, which may be so near that noise makes the slope.
        half = bisect_right(self.sizes, self.sizes[-1] // 2) - 1
        rise = (self.times[-1] - self.times[half]) / (self.sizes[-1] - self.sizes[half])
        return rise or self.times[-1] / self.sizes[-1]


def pooled(values: Sequence[float], weights: Sequence[float] | None = None) -> list[float]:
    """Return the non-decreasing sequence with the least weighted sum of squared distances from ``values``.

    By the pool-adjacent-violators algorithm: runs that fall are replaced by their mean.
    """
    blocks: list[tuple[float, float, int]] = []  # mean, weight and length of runs, whose means rise
    for mean, weight in zip(values, weights or [1.0] * len(values), strict=True):
        length = 1
        while blocks and blocks[-1][0] >= mean:
            before, heavy, number = blocks.pop()
            mean, weight, length = (before * heavy + mean * weight) / (heavy + weight), heavy + weight, length + number
        blocks.append((mean, weight, length))
    return [mean for mean, _, length in blocks for _ in range(length)]


MARGIN = 0.8  # part of the free memory that is counted on; the rest is for fragments, buffers and other programs
MOST = 2**31 - 1  # samples; no batch_size is larger


class MemoryExtrapolation:
    """Predicts memory from what smaller batches took, so that no batch is tried that may not fit.

    Args:
        guess: bytes a sample, until two sizes have been seen.
        least: bytes a sample at least, whatever has been seen: small growth is lost in the rest.
    """

    def __init__(self, guess: float, least: float) -> None:
        self._guess = guess
        self._least = max(least, 1.0)
        self._seen: list[tuple[int, int]] = []  # size, bytes; rising sizes

    def note(self, size: int, peak: int) -> None:
        """Note that a batch of ``size`` took at most ``peak`` bytes; only sizes above all earlier ones count."""
        if size > self.largest:
            self._seen.append((size, peak))

    @property
    def largest(self) -> int:
        """The largest size seen."""
        return self._seen[-1][0] if self._seen else 0

    @property
    def per_sample(self) -> float:
        """The bytes of one more sample: as over the last step or over all of them, whichever is more."""
        if len(self._seen) < 2:
            return max(self._guess, self._least)
        size, peak = self._seen[-1]
        slopes = [(peak - bytes) / (size - smaller) for smaller, bytes in (self._seen[0], self._seen[-2])]
        return max(*slopes, self._least)

    def cap(self, room: int) -> int:
        """Return the largest batch that fits if ``room`` bytes are free besides what the largest one so far took."""
        return min(self.largest + max(0, int(MARGIN * room / self.per_sample)), MOST)


def ladder(batch: int, ranks: int) -> list[int]:
    """Return rising sizes from 1 up to the even share of ``batch``, each at most twice the one before."""
    sizes = [-(-batch // ranks)]
    while sizes[-1] > 1:
        sizes.append(-(-sizes[-1] // 2))
    return sizes[::-1]
