"""Shares of a batch: UNIFORM, alike, and STATIC, by the ranks' speeds (StaticLB, §3).

STATIC gives each rank as many samples as it trains in the same time as the others. ``lines`` are the log's.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from statistics import fmean
from typing import Protocol, TypeVar

from bpt.base.errors import UserError
from bpt.graph.part import slice_bounds
from bpt.graph.share import Share
from bpt.parallel.balance.divided_net import peer_seconds, sharing
from bpt.parallel.balance.speed import SpeedFunction, TimeFunction

T = TypeVar("T")


class Balance(Protocol):
    """Divides a batch among the ranks that share it."""

    def shares(self, total: int, ranks: int) -> tuple[Share, ...]:
        """Return the share of each rank of a batch of ``total`` samples, in order; they tile ``[0, total)``.

        A share may be empty. The same on every rank, and every time.
        """


def tile(counts: Sequence[int]) -> tuple[Share, ...]:
    """Return the spans of shares of these sizes, one behind the other."""
    starts = accumulate(counts, initial=0)
    return tuple(Share(start, count, sum(counts)) for start, count in zip(starts, counts, strict=False))


class Uniform:
    """Shares whose sizes differ by at most one; the first ranks get the larger ones."""

    def shares(self, total: int, ranks: int) -> tuple[Share, ...]:
        """Return shares that differ by at most one sample."""
        return tile([stop - start for start, stop in slice_bounds(total, ranks)])


SHOWN = 8  # ranks that a message spells out


class Static:
    """Shares that let the slowest rank finish as early as it can: all x_p / s_p(x_p) are equal, up to one sample.

    The paper's partitioner works with bytes and real numbers; this is the optimum among whole samples. Among replicas
    whose ranks share split layers it is that of these layers as well.

    Args:
        functions: of each that shares the batch, in order.
        names: of these, for messages: "rank 2 (host b)"; by default rank 0, 1, …
        group: the number of consecutive ranks that share split layers (PEER).
        split: the part of the net's work in these.
        by: other times than those of computing, of which the slowest is to be as short as it can (``by: ITERATION``).
    """

    def __init__(
        self,
        functions: Sequence[SpeedFunction],
        names: Sequence[str] = (),
        group: int = 1,
        split: float = 0.0,
        by: Sequence[TimeFunction] = (),
    ) -> None:
        self.functions = tuple(functions)
        self.names = tuple(names) or _numbered(functions)
        self._group = group
        self._split = split if group > 1 else 0.0
        self._by = tuple(by)
        self._known: dict[int, tuple[Share, ...]] = {}

    def shares(self, total: int, ranks: int) -> tuple[Share, ...]:
        """Return the shares by the speed functions; ``ranks`` must be the number of functions.

        Raises:
            UserError: ``total`` samples do not fit into the memory of all ranks together.
        """
        assert ranks == len(self.functions), (ranks, len(self.functions))
        if total not in self._known:
            _check_fits(self.functions, total, self.names)
            self._known[total] = tile(self._counts(total))
        return self._known[total]

    def _counts(self, total: int) -> list[int]:
        groups = self._groups(self.functions)
        if len(groups) == 1 or not self._split:
            return fastest(self._by or self.functions, total)
        of_groups = fastest([sharing(group, self._split, fastest) for group in groups], total)
        return [count for group, own in zip(groups, of_groups, strict=True) for count in fastest(group, own)]

    def _groups(self, each: Sequence[T]) -> list[Sequence[T]]:
        return [each[first : first + self._group] for first in range(0, len(each), self._group)]

    def without_caps(self) -> Static:
        """Return this balance without memory limits, which hold for training: a test needs far less memory."""
        functions = [replace(function, cap=None) for function in self.functions]
        return Static(functions, self.names, self._group, self._split)

    def predicted_seconds(self, shares: Sequence[Share]) -> tuple[float, ...]:
        """Return the time that each rank computes for its share."""
        counts = self._groups([share.count for share in shares])
        groups = zip(self._groups(self.functions), counts, strict=True)
        return tuple(seconds for each in groups for seconds in peer_seconds(*each, self._split))

    def remarks(self, shares: Sequence[Share]) -> list[str]:
        """Return remarks on the predictions for ``shares``, a line each: which are beyond the measured sizes."""
        return [
            f"{name}: {share.count} samples are more than the {function.largest} that were measured; "
            "their time is an extrapolation"
            for name, share, function in zip(self.names, shares, self.functions, strict=True)
            if share.count > function.largest
        ]


def fastest(functions: Sequence[TimeFunction], total: int) -> list[int]:
    """Return whole x_p with sum ``total`` and x_p <= cap_p that minimise the largest t_p(x_p).

    The next sample always goes to the rank that would be done with it first. Since no t_p falls, this takes the
    ``total`` cheapest of all steps, so no other division is done earlier. Of ranks that would be done at the same
    time the one with the fewest samples gets it, then the one with the lowest number.

    Raises:
        UserError: ``total`` is more than all caps together.
    """
    _check_fits(functions, total, _numbered(functions))
    counts = [0] * len(functions)
    queue = [(f.seconds(1), 0, rank) for rank, f in enumerate(functions) if f.cap is None or f.cap > 0]
    heapq.heapify(queue)
    for _ in range(total):
        _, count, rank = queue[0]
        count += 1
        counts[rank] = count
        function = functions[rank]
        if count == function.cap:
            heapq.heappop(queue)
        else:
            heapq.heapreplace(queue, (function.seconds(count + 1), count, rank))
    return counts


def _numbered(functions: Sequence[TimeFunction]) -> tuple[str, ...]:
    return tuple(f"rank {rank}" for rank in range(len(functions)))


def _check_fits(functions: Sequence[TimeFunction], total: int, names: Sequence[str]) -> None:
    caps = [function.cap for function in functions if function.cap is not None]
    if len(caps) < len(functions) or total <= sum(caps):
        return
    room = ", ".join(f"{name}: {cap}" for name, cap in list(zip(names, caps, strict=True))[:SHOWN])
    more = f" and {len(caps) - SHOWN} more ranks" if len(caps) > SHOWN else ""
    raise UserError(
        f"balance: STATIC: a batch of {total} samples does not fit into memory: {room}{more}, "
        f"together {sum(caps)} samples, {total - sum(caps)} too few; use a smaller batch_size or more ranks, or "
        "measure the profile again if more memory is free now"
    )


def imbalance(seconds: Sequence[float]) -> float:
    """Return how much longer the slowest rank takes than the mean: max / mean - 1; 0 if all are equal."""
    mean = fmean(seconds)
    return max(seconds) / mean - 1 if mean else 0.0


def lines(
    shares: Sequence[Share],
    predicted: Sequence[float] | None = None,
    seen: Sequence[float] | None = None,
    ranks: Sequence[int] | None = None,
) -> list[str]:
    """Return a line for each rank, and one for the imbalance, max / mean - 1 of the times.

    Args:
        predicted: seconds of an iteration on each rank; ``None``: nothing is known (balance UNIFORM).
        seen: the same, measured in training, without waiting for others.
        ranks: the numbers of the ranks that have the shares; by default 0, 1, …
    """
    times = {"predicted": predicted, "seen": seen}
    known = {word: seconds for word, seconds in times.items() if seconds is not None}
    result = []
    for place, (rank, share) in enumerate(zip(ranks or range(len(shares)), shares, strict=True)):
        cells = [f"{word} {seconds[place] * 1e3:.4g} ms" for word, seconds in known.items()]
        result.append(", ".join([f"Balance: rank {rank} trains {share.count} of {share.total} samples", *cells]))
    if known:
        parts = [f"{word} {imbalance(seconds):.1%}" for word, seconds in known.items()]
        result.append(f"Balance: imbalance {', '.join(parts)} (slowest rank over the mean)")
    return result
