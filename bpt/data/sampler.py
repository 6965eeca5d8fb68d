"""Sampler: the order of samples in the endless stream of a data layer.

Random numbers are hashes of (seed, epoch, sample) and not the output of a generator with a state. So a sample's numbers
are available at once, in any order and on any machine. With any number of ranks, and after a restart, a sample gets the
same transform as in an uninterrupted run of one process.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bpt.base.seeds import derive_seed

Hashes = NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


def hash_samples(seed: int, epochs: NDArray[np.int64], samples: NDArray[np.int64]) -> Hashes:
    """Return 64 random bits for each pair of epoch and sample (two arrays of one shape, numbers ≥ 0)."""
    keys = np.full(np.shape(epochs), seed, np.uint64)
    for part in (epochs, samples):
        keys = _splitmix(keys + part.astype(np.uint64) * _GOLDEN)
    return keys


def below(bounds: int | NDArray[np.int64], hashes: Hashes) -> NDArray[np.int64]:
    """Map hashes evenly to integers of ``[0, bound)``; one bound < 2³² for all, or one for each."""
    numbers: Hashes = (hashes >> np.uint64(32)) * np.asarray(bounds, np.uint64) >> np.uint64(32)
    return numbers.astype(np.int64)


def _splitmix(state: Hashes) -> Hashes:
    """Return the output of the generator SplitMix64 (Steele, Lea, Flood 2014) in this state; wraps around."""
    mixed: Hashes = state + _GOLDEN
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _FIRST
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _SECOND
    mixed ^= mixed >> np.uint64(31)
    return mixed


Integers = NDArray[np.int64]


class SampleDraw(NamedTuple):
    """Consecutive samples of the stream: the epoch of each, and its index in the source."""

    epochs: Integers
    samples: Integers

    def hashes(self, seed: int, *what: str | int) -> Hashes:
        """Return 64 random bits for each sample; ``what`` names their use, and each use has its own bits."""
        return hash_samples(derive_seed(seed, *what), self.epochs, self.samples)


class Sampler:
    """The stream runs through all ``size`` samples, epoch after epoch.

    Args:
        files: number of samples in each file of the source, in the order of the source.
        shuffle: whether each epoch has a random order: a permutation of the files, and of the samples within each. If
            not, each epoch has the source's order.
        seed: seed of the order.
        skip: number of samples to skip at the start of the stream (Caffe: rand_skip).

    Attributes:
        size: number of samples of the source.
        skip: the argument ``skip``.
    """

    def __init__(self, files: Sequence[int], *, shuffle: bool = False, seed: int = 0, skip: int = 0) -> None:
        self._files = np.asarray(files, np.int64)
        self.size = int(self._files.sum())
        self.skip = skip
        self._ends = np.cumsum(self._files)
        self._shuffle = shuffle
        self._seed = seed
        self._orders: dict[int, Integers] = {}

    def indices(self, position: int, count: int) -> SampleDraw:
        """Return the samples at ``[position, position + count)`` of the stream.

        The result depends on nothing else, so ranks may draw disjoint parts, in any order.
        """
        start = position + self.skip
        epochs, samples = np.divmod(np.arange(start, start + count), self.size)
        if self._shuffle:
            for epoch in np.unique(epochs).tolist():
                now = epochs == epoch
                samples[now] = self._order(epoch)[samples[now]]
        return SampleDraw(epochs, samples)

    def order(self, epoch: int, among: Integers | None = None) -> Integers:
        """Return the samples in the order of ``epoch``, including skipped ones: (size,).

        Args:
            among: the samples to return, ascending; the cost depends only on their number. By default all.
        """
        samples = np.arange(self.size) if among is None else among
        if not self._shuffle:
            return samples
        # Sorting by hashes gives the same order with every version of NumPy; its generators do not guarantee that.
        by_file = self._hashes("files", epoch, np.arange(len(self._files)))
        by_sample = self._hashes("samples", epoch, samples)
        return samples[np.lexsort((by_sample, by_file[np.searchsorted(self._ends, samples, side="right")]))]

    def _order(self, epoch: int) -> Integers:
        if epoch not in self._orders:
            # A batch rarely has samples of more than two epochs.
            self._orders = {e: order for e, order in self._orders.items() if e == epoch - 1}
            self._orders[epoch] = self.order(epoch)
        return self._orders[epoch]

    def _hashes(self, what: str, epoch: int, numbers: Integers) -> NDArray[np.uint64]:
        return hash_samples(derive_seed(self._seed, what), np.full_like(numbers, epoch), numbers)
