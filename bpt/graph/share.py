"""Share: which samples of a batch one rank has. Arithmetic only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

GOLDEN = (math.sqrt(5) - 1) / 2


@dataclass(frozen=True)
class Share:
    """``count`` consecutive samples, from ``start`` on, of a batch of ``total``; the batch is a ring.

    The shares of all ranks that share a batch tile it, in the order of the ranks.
    """

    start: int
    count: int
    total: int

    def runs(self, shift: int = 0) -> tuple[tuple[int, int], ...]:
        """Return the samples as runs ``[begin, end)`` of the batch, in the rank's order.

        There are at most two runs, unless the share is ``joined``.

        Args:
            shift: rotates all shares along the ring, so that a rank does not get the same samples every epoch.
        """
        begin = (self.start + shift) % self.total if self.total else 0
        end = begin + self.count
        if end <= self.total:
            return ((begin, end),) if self.count else ()
        return (begin, self.total), (0, end - self.total)

    @staticmethod
    def joined(shares: Sequence[Share]) -> Share:
        """Return the samples of several shares of one batch, those of the first one first."""
        first, *others = shares
        end, whole = first.start + first.count, True
        for share in others:
            whole &= share.start == end or not share.count
            end += share.count
        count = sum(share.count for share in shares)
        if whole:
            return Share(first.start, count, first.total)
        return _Joined(first.start, count, first.total, tuple(shares))

    def part(self, number: int, parts: int) -> Share:
        """Part ``number`` of so many, consecutive and nearly equal: the longer ones, by a sample, come first."""
        size, longer = divmod(self.count, parts)
        start = number * size + min(number, longer)
        return Share(self.start + start, size + (number < longer), self.total)

    def shift(self, part: float) -> int:
        """Return the samples by which shares are rotated that are turned by ``part`` of the batch."""
        return int(part * self.total)


@dataclass(frozen=True)
class _Joined(Share):
    """Shares that do not lie one behind the other; ``start`` is that of the first."""

    shares: tuple[Share, ...]

    def runs(self, shift: int = 0) -> tuple[tuple[int, int], ...]:
        return tuple(run for share in self.shares for run in share.runs(shift))

    def part(self, number: int, parts: int) -> Share:
        raise AssertionError("parts are taken before shares are joined")


def whole_batch(samples: int) -> Share:
    """Return the share of a rank that has the batch for itself."""
    return Share(0, samples, samples)


def rotation(epoch: int) -> float:
    """Return the part of the ring, in [0, 1), by which shares are rotated in an epoch; 0 in the first.

    Multiples of the golden section never come back and leave no gap for long, so after a few epochs every rank
    has seen all samples, also where the data come in one order for ever.
    """
    return epoch * GOLDEN % 1.0


@dataclass(frozen=True)
class ShardRotation:
    """When the shares of a net's batches are rotated: once an epoch of its first data layer.

    All data layers of a net keep to one, whatever their epochs, so that their rows go on belonging together.

    Attributes:
        batch: samples of a whole batch of that layer.
        epoch: samples of its data set; 0: it has no epochs, and nothing is rotated.
    """

    batch: int
    epoch: int

    def part(self, passes: int) -> float:
        """Return the part of the batch, in [0, 1), by which shares are rotated after so many passes."""
        return rotation(passes * self.batch // self.epoch) if self.epoch else 0.0
