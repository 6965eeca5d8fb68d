"""SpeedFunction: how long a rank takes for a batch of any size, from sizes that were measured."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise


@dataclass(frozen=True)
class SpeedFunction:
    """The time t(x) of a batch of x samples, and the speed s(x) = x / t(x) (StaticLB, §3; FuPerMod).

    t is 0 at 0, straight between the measured sizes, and never falls. Beyond the largest of them it goes on as
    between the last two or, if it was level there, by the mean time of a sample.

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
        """The function nearest to measured ``(size, seconds)``; sizes from 1, in any order; at least one.

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
        """t(x): seconds for a batch of ``size``."""
        sizes, times = self.sizes, self.times
        after = bisect_right(sizes, size)
        if after == len(sizes):
            return times[-1] + (size - sizes[-1]) * self._last_slope
        low, high = times[after - 1], times[after]
        slope = (high - low) / (sizes[after] - sizes[after - 1])
        return min(high, low + (size - sizes[after - 1]) * slope)  # rounding must not lift it above the next point

    def speed(self, size: int) -> float:
        """s(x) = x / t(x): samples a second in batches of ``size``, at least 1."""
        return size / self.seconds(size)

    @property
    def largest(self) -> int:
        """The largest size that was measured."""
        return self.sizes[-1]

    @cached_property
    def _last_slope(self) -> float:
        rise = (self.times[-1] - self.times[-2]) / (self.sizes[-1] - self.sizes[-2])
        return rise or self.times[-1] / self.sizes[-1]


def pooled(values: Sequence[float], weights: Sequence[float] | None = None) -> list[float]:
    """The never falling sequence with the least weighted sum of squared distances from ``values``.

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
