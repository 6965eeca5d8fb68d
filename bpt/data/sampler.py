"""Sampler: which samples stand where in the endless stream that a data layer hands out.

Random numbers depend only on what they are drawn for: a hash of (seed, epoch, sample). No generator is advanced, so any
sample's numbers can be had at once, in any order, on any machine: with any number of ranks, and after a restart, a
sample is treated as in an uninterrupted run of one process.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bpt.seeds import derive_seed

Hashes = NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


def hash_samples(seed: int, epochs: NDArray[np.int64], samples: NDArray[np.int64]) -> Hashes:
    """64 random bits for each pair of epoch and sample (two arrays of one shape, numbers ≥ 0)."""
    keys = np.full(np.shape(epochs), seed, np.uint64)
    for part in (epochs, samples):
        keys = _splitmix(keys + part.astype(np.uint64) * _GOLDEN)
    return keys


def below(bounds: int | NDArray[np.int64], hashes: Hashes) -> NDArray[np.int64]:
    """Maps hashes evenly to integers of ``[0, bound)``; one bound < 2³² for all, or one for each."""
    numbers: Hashes = (hashes >> np.uint64(32)) * np.asarray(bounds, np.uint64) >> np.uint64(32)
    return numbers.astype(np.int64)


def _splitmix(state: Hashes) -> Hashes:
    """The output of the generator SplitMix64 (Steele, Lea, Flood 2014) in this state; wraps around."""
    mixed: Hashes = state + _GOLDEN
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _FIRST
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _SECOND
    mixed ^= mixed >> np.uint64(31)
    return mixed


Integers = NDArray[np.int64]


class Draw(NamedTuple):
    """Samples of a stretch of the stream: for each its epoch and its index in the source."""

    epochs: Integers
    samples: Integers


class Sampler:
    """The stream runs through all ``size`` samples, epoch after epoch.

    Args:
        files: number of samples in each file of the source; together they are its samples, in order.
        shuffle: every epoch has an order of its own, drawn from the seed: the files are permuted, and
            the samples within each. Otherwise every epoch has the source's order.
        seed: of the order.
        skip: the stream starts so many samples after the beginning (Caffe: rand_skip).

    Attributes:
        size: samples of the source.
        skip: as given.
    """

    def __init__(self, files: Sequence[int], *, shuffle: bool = False, seed: int = 0, skip: int = 0) -> None:
        self._files = np.asarray(files, np.int64)
        self.size = int(self._files.sum())
        self.skip = skip
        self._ends = np.cumsum(self._files)
        self._shuffle = shuffle
        self._seed = seed
        self._orders: dict[int, Integers] = {}

    def indices(self, position: int, count: int) -> Draw:
        """What stands at ``[position, position + count)`` of the stream.

        The answer depends on nothing else, so ranks may draw disjoint stretches, in any order.
        """
        start = position + self.skip
        epochs, samples = np.divmod(np.arange(start, start + count), self.size)
        if self._shuffle:
            for epoch in np.unique(epochs).tolist():
                now = epochs == epoch
                samples[now] = self._order(epoch)[samples[now]]
        return Draw(epochs, samples)

    def order(self, epoch: int, among: Integers | None = None) -> Integers:
        """The samples in the order in which ``epoch`` has them, whatever is skipped: (size,).

        Args:
            among: only these, in ascending order; the work is that for their number.
        """
        samples = np.arange(self.size) if among is None else among
        if not self._shuffle:
            return samples
        # Sorting by hashes gives the same order with every version of NumPy; its generators do not promise that.
        by_file = self._hashes("files", epoch, np.arange(len(self._files)))
        by_sample = self._hashes("samples", epoch, samples)
        return samples[np.lexsort((by_sample, by_file[np.searchsorted(self._ends, samples, side="right")]))]

    def _order(self, epoch: int) -> Integers:
        if epoch not in self._orders:
            # A batch seldom spans more than the end of one epoch and the start of the next.
            self._orders = {e: order for e, order in self._orders.items() if e == epoch - 1}
            self._orders[epoch] = self.order(epoch)
        return self._orders[epoch]

    def _hashes(self, what: str, epoch: int, numbers: Integers) -> NDArray[np.uint64]:
        return hash_samples(derive_seed(self._seed, what), np.full_like(numbers, epoch), numbers)
