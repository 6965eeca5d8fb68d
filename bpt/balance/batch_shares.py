"""Shares of a batch: UNIFORM, alike, and STATIC, by the ranks' speeds (StaticLB, §3).

STATIC gives each rank as many samples as it trains in the same time as the others. ``lines`` are the log's.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from statistics import fmean
from typing import Protocol

from bpt.balance.speed import SpeedFunction
from bpt.errors import UserError
from bpt.graph.part import slice_bounds
from bpt.share import Share


class Balance(Protocol):
    """Divides a batch among the ranks that share it."""

    def shares(self, total: int, ranks: int) -> tuple[Share, ...]:
        """The share of each rank of a batch of ``total`` samples, in order; they tile ``[0, total)``.

        A share may be empty. The same on every rank, and every time.
        """


def tile(counts: Sequence[int]) -> tuple[Share, ...]:
    """Shares of so many samples, one behind the other."""
    starts = accumulate(counts, initial=0)
    return tuple(Share(start, count, sum(counts)) for start, count in zip(starts, counts, strict=False))


class Uniform:
    """Shares whose sizes differ by at most one; the first ranks get the larger ones."""

    def shares(self, total: int, ranks: int) -> tuple[Share, ...]:
        """See Balance."""
        return tile([stop - start for start, stop in slice_bounds(total, ranks)])


SHOWN = 8  # ranks that a message spells out


class Static:
    """Shares that let the slowest rank finish as early as it can: all x_p / s_p(x_p) are equal, up to one sample.

    The paper's partitioner works with bytes and real numbers; this is the optimum among whole samples.

    Args:
        functions: of each rank that shares the batch, in order.
    """

    def __init__(self, functions: Sequence[SpeedFunction]) -> None:
        self.functions = tuple(functions)
        self._known: dict[int, tuple[Share, ...]] = {}

    def shares(self, total: int, ranks: int) -> tuple[Share, ...]:
        """See Balance; ``ranks`` is the number of functions.

        Raises:
            UserError: ``total`` samples do not fit into the memory of all ranks together.
        """
        assert ranks == len(self.functions), (ranks, len(self.functions))
        if total not in self._known:
            self._known[total] = tile(fastest(self.functions, total))
        return self._known[total]

    def without_caps(self) -> Static:
        """The same without limits of memory: they were measured for training, and a test needs far less."""
        return Static([replace(function, cap=None) for function in self.functions])

    def predicted_seconds(self, shares: Sequence[Share]) -> tuple[float, ...]:
        """The time that each rank takes for its share."""
        return tuple(f.seconds(share.count) for f, share in zip(self.functions, shares, strict=True))

    def remarks(self, shares: Sequence[Share], ranks: Sequence[int] = ()) -> list[str]:
        """What to know of the predictions for ``shares``, a line a rank: those beyond what was measured.

        Args:
            ranks: that have the shares; by default 0, 1, …
        """
        return [
            f"rank {rank}: {share.count} samples are more than the {function.largest} that were measured; "
            "their time is an extrapolation"
            for rank, function, share in zip(ranks or range(len(shares)), self.functions, shares, strict=True)
            if share.count > function.largest
        ]


def fastest(functions: Sequence[SpeedFunction], total: int) -> list[int]:
    """Whole x_p with sum ``total`` and x_p <= cap_p that minimise the largest t_p(x_p).

    The next sample always goes to the rank that would be done with it first. Since no t_p falls, this takes the
    ``total`` cheapest of all steps, so no other division is done earlier. Of ranks that would be done at the same
    time the one with the fewest samples gets it, then the one with the lowest number.

    Raises:
        UserError: ``total`` is more than all caps together.
    """
    _check_fits(functions, total)
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


def _check_fits(functions: Sequence[SpeedFunction], total: int) -> None:
    caps = [function.cap for function in functions if function.cap is not None]
    if len(caps) < len(functions) or total <= sum(caps):
        return
    room = ", ".join(f"rank {rank}: {cap}" for rank, cap in enumerate(caps[:SHOWN]))
    more = f" and {len(caps) - SHOWN} more ranks" if len(caps) > SHOWN else ""
    raise UserError(
        f"balance: STATIC: a batch of {total} samples does not fit into memory: {room}{more}, "
        f"together {sum(caps)} samples, {total - sum(caps)} too few; use a smaller batch_size or more ranks, or "
        "measure the profile again if more memory is free now"
    )


def imbalance(seconds: Sequence[float]) -> float:
    """How much longer the slowest rank takes than the mean: max / mean - 1; 0 if all are equal."""
    mean = fmean(seconds)
    return max(seconds) / mean - 1 if mean else 0.0


def lines(
    shares: Sequence[Share],
    predicted: Sequence[float] | None = None,
    seen: Sequence[float] | None = None,
    ranks: Sequence[int] | None = None,
) -> list[str]:
    """A line a rank, and one about the imbalance, max / mean - 1 of the times.

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
