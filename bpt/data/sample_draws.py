"""Random numbers of a sample in an epoch, for transforms that need a varying number of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bpt.base.seeds import derive_seed
from bpt.data.sampler import below, hash_samples


class SampleDraws:
    """A sequence of random numbers that depends only on (seed, epoch, sample), and not on other samples or ranks."""

    def __init__(self, seed: int, epoch: int, sample: int) -> None:
        self._seed = derive_seed(seed, epoch, sample)
        self._drawn = 0

    def uniforms(self, count: int) -> NDArray[np.float64]:
        """Return the next ``count`` numbers in [0, 1)."""
        numbers: NDArray[np.float64] = (self._bits(count) >> np.uint64(11)).astype(np.float64) * 2.0**-53
        return numbers

    def uniform(self, low: float = 0.0, high: float = 1.0) -> float:
        return low + (high - low) * float(self.uniforms(1)[0])

    def happens(self, probability: float) -> bool:
        return float(self.uniforms(1)[0]) < probability

    def below(self, bound: int) -> int:
        """Return an integer of [0, ``bound``)."""
        return int(below(bound, self._bits(1))[0])

    def order(self, count: int) -> NDArray[np.int64]:
        """Return a random permutation of the numbers below ``count``."""
        return np.argsort(self._bits(count), kind="stable")

    def _bits(self, count: int) -> NDArray[np.uint64]:
        numbers = np.arange(self._drawn, self._drawn + count)
        self._drawn += count
        return hash_samples(self._seed, numbers, numbers)
