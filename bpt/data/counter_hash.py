"""Random numbers that depend only on what they are drawn for: a hash of (seed, epoch, sample).

No generator is advanced, so any sample's numbers can be had at once, in any order, on any machine: with
any number of ranks, and after a restart, a sample is treated as in an uninterrupted run of one process.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

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
