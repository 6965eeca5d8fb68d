"""What every way to divide a batch offers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Protocol

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
