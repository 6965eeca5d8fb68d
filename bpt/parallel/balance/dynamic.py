"""DYNAMIC: shares that follow the speeds seen during a run.

As in the partitioners of Clarke, Lastovetsky and Rychkov (2011) the speed function of a rank is built while it works:
each share that a rank has had is a point of it. If the time of a share differs from the function, the machine has
changed (a neighbour came or went, a clock was throttled), and the whole function is scaled. Shares change only if that
pays, since a rank with other samples drops what it has read ahead. Losses and gradients do not depend on who trains
which samples, so the loss curve is that of any other balance, up to rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bpt.graph.part import slice_bounds
from bpt.graph.share import Share
from bpt.parallel.balance.batch_shares import fastest, tile
from bpt.parallel.balance.iteration_time import IterationFunction, seconds_left
from bpt.parallel.balance.speed import SpeedFunction, TimeFunction

WORTH = 0.05  # shares change if the slowest rank is expected to gain this part of its time
CHANGED = 0.15  # a time that differs by more than this part from the function shows that the machine has changed
FRESH = 0.5  # the weight of a new time beside those seen before at the same size


Points = dict[int, Sequence[float]]
"""Samples of a share → its seconds, and those of its parts if they are known."""


class Dynamic:
    """Shares by the speeds that were seen last; all equal until some have been seen.

    Every rank gets at least one sample, if there are enough: without any it would never be seen to be fast again.

    Args:
        ranks: the number of data-parallel ranks.

    Attributes:
        functions: the speeds by which batches are divided now; empty until some have been seen.
    """

    def __init__(self, ranks: int) -> None:
        self._seen: list[Points] = [{} for _ in range(ranks)]
        self._counts: dict[int, list[int]] = {}  # shares by total; a continued run gives its own
        self.functions: tuple[SpeedFunction | IterationFunction, ...] = ()

    def shares(self, total: int, ranks: int) -> tuple[Share, ...]:
        """Return the shares by the speeds seen last."""
        assert ranks == len(self._seen), (ranks, len(self._seen))
        if total not in self._counts:
            self._counts[total] = divided(self.functions, total, ranks)
        return tile(self._counts[total])

    def without_caps(self) -> Dynamic:
        """Return this balance without memory limits: a test needs far less memory than training."""
        other = Dynamic(len(self._seen))
        other.functions = tuple(replace(function, cap=None) for function in self.functions)
        return other

    def use_shares(self, counts: Sequence[int]) -> None:
        """Use these shares from now on: those of the run that this one continues."""
        assert len(counts) == len(self._seen), counts
        self._counts = {sum(counts): list(counts)}

    def predicted_seconds(self, shares: Sequence[Share]) -> tuple[float, ...]:
        """Return the expected seconds of each share."""
        return tuple(f.seconds(share.count) for f, share in zip(self.functions, shares, strict=True))

    def follow(
        self,
        total: int,
        seconds: Sequence[float],
        caps: Sequence[int],
        ready: Sequence[Sequence[float]] = (),
        exchanges: Sequence[float] = (),
    ) -> bool:
        """Add the seconds of each share of ``total`` samples; return whether the shares change.

        Args:
            total: the samples of all shares.
            seconds: the seconds of each share in an iteration; above 0 unless it is empty.
            caps: the largest share that fits into each memory.
            ready: the seconds until each share has the gradients of each segment and has computed all, and those of its
                update. With these, the shares make the iteration short (IterationFunction).
            exchanges: the seconds of the exchange of each segment.
        """
        now = [share.count for share in self.shares(total, len(self._seen))]
        for place, (points, count, time) in enumerate(zip(self._seen, now, seconds, strict=True)):
            if count:
                _learn(points, count, [time, *(ready[place] if ready else ())])
        if not all(self._seen):
            return False  # more ranks than samples: the speeds of ranks without any are unknown
        left = seconds_left(exchanges) if ready else ()
        found = tuple(
            _fitted(points, max(cap, count), left) for points, cap, count in zip(self._seen, caps, now, strict=True)
        )
        counts = divided(found, total, len(found))
        if longest(found, counts) > (1 - WORTH) * longest(found, now):
            return False
        self.functions = found
        self._counts = {total: counts}
        return True


def _learn(points: Points, size: int, seconds: Sequence[float]) -> None:
    """Add the seconds of a size to the points of a rank."""
    if points:
        expected = _computing(points).seconds(size)
        ratio = seconds[0] / expected
        if abs(ratio - 1) > CHANGED:
            for each in points:
                points[each] = [time * ratio for time in points[each]]
            points[size] = seconds
            return
    before = points.get(size, seconds)
    points[size] = [FRESH * new + (1 - FRESH) * old for new, old in zip(seconds, before, strict=True)]


def _computing(points: Points, cap: int | None = None) -> SpeedFunction:
    return SpeedFunction.fitted(((size, seconds[0]) for size, seconds in points.items()), cap)


def _fitted(points: Points, cap: int, left: tuple[float, ...]) -> SpeedFunction | IterationFunction:
    """Return the time of a rank: its computing or, if exchanges are ``left``, the iteration."""
    if not left:
        return _computing(points, cap)
    return IterationFunction.fitted({size: seconds[1:] for size, seconds in points.items()}, left, cap)


def longest(functions: Sequence[TimeFunction], counts: Sequence[int]) -> float:
    """Return the time of the slowest rank."""
    return max(function.seconds(count) for function, count in zip(functions, counts, strict=True))


def divided(functions: Sequence[TimeFunction], total: int, ranks: int) -> list[int]:
    """Return the number of samples of each rank: at least one, by the functions, or equal without functions."""
    if not functions:
        return [stop - start for start, stop in slice_bounds(total, ranks)]
    counts = fastest(functions, total)
    if total >= ranks:
        for idle in (rank for rank, count in enumerate(counts) if not count):
            counts[max(range(ranks), key=counts.__getitem__)] -= 1
            counts[idle] = 1
    return counts
