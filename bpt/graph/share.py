"""Share: the samples of a batch that one rank has. Arithmetic only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

GOLDEN = (math.sqrt(5) - 1) / 2


@dataclass(frozen=True)
class Share:
    """A share of a batch of ``total`` samples: ``count`` consecutive ones from ``start`` on; the batch is a ring.

    The shares of all ranks tile the batch in the order of the ranks.
    """

    start: int
    count: int
    total: int

    def runs(self, shift: int = 0) -> tuple[tuple[int, int], ...]:
        """Return the samples as runs ``[begin, end)`` of the batch, in the rank's order.

        There are at most two runs, unless the share is ``joined``.

        Args:
            shift: rotates all shares along the ring, so that a rank gets other samples in each epoch.
        """
        begin = (self.start + shift) % self.total if self.total else 0
        end = begin + self.count
        if end <= self.total:
            return ((begin, end),) if self.count else ()
        return (begin, self.total), (0, end - self.total)

    @staticmethod
    def joined(shares: Sequence[Share]) -> Share:
        """Return one share with the samples of several shares of a batch, in their order."""
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
        """Return part ``number`` of ``parts`` nearly equal, consecutive parts; those longer by a sample come first."""
        size, longer = divmod(self.count, parts)
        start = number * size + min(number, longer)
        return Share(self.start + start, size + (number < longer), self.total)

    def shift(self, part: float) -> int:
        """Return the number of samples for a rotation by the fraction ``part`` of the batch."""
        return int(part * self.total)


@dataclass(frozen=True)
class _Joined(Share):
    """Shares that are not consecutive; ``start`` is that of the first."""

    shares: tuple[Share, ...]

    def runs(self, shift: int = 0) -> tuple[tuple[int, int], ...]:
        return tuple(run for share in self.shares for run in share.runs(shift))

    def part(self, number: int, parts: int) -> Share:
        raise AssertionError("joined shares have no parts")


def whole_batch(samples: int) -> Share:
    """Return the share of a rank that has the whole batch."""
    return Share(0, samples, samples)


def rotation(epoch: int) -> float:
    """Return the fraction of the ring, in [0, 1), by which shares are rotated in an epoch; 0 in the first.

    Multiples of the golden section never repeat and soon fill all gaps. So every rank sees all samples after a few
    epochs, even if the order of the data never changes.
    """
    return epoch * GOLDEN % 1.0


@dataclass(frozen=True)
class ShardRotation:
    """The rotation of the shares of a net's batches, once an epoch of its first data layer.

    All data layers of a net use the same rotation, whatever their epochs, so that their rows stay together.

    Attributes:
        batch: the samples of a whole batch of that layer.
        epoch: the samples of its data set; 0: it has no epochs, and shares are not rotated.
    """

    batch: int
    epoch: int

    def part(self, passes: int) -> float:
        """Return the fraction of the batch, in [0, 1), by which shares are rotated after ``passes`` passes."""
        return rotation(passes * self.batch // self.epoch) if self.epoch else 0.0
