"""Random numbers of one sample of one epoch, for transformations that draw as many as they happen to need."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bpt.data.sampler import below, hash_samples
from bpt.seeds import derive_seed


class SampleDraws:
    """Numbers one after the other, which depend on (seed, epoch, sample) only: on no other sample, rank or thread."""

    def __init__(self, seed: int, epoch: int, sample: int) -> None:
        self._seed = derive_seed(seed, epoch, sample)
        self._drawn = 0

    def uniforms(self, count: int) -> NDArray[np.float64]:
        """The next ``count`` numbers in [0, 1)."""
        numbers: NDArray[np.float64] = (self._bits(count) >> np.uint64(11)).astype(np.float64) * 2.0**-53
        return numbers

    def uniform(self, low: float = 0.0, high: float = 1.0) -> float:
        return low + (high - low) * float(self.uniforms(1)[0])

    def happens(self, probability: float) -> bool:
        return float(self.uniforms(1)[0]) < probability

    def below(self, bound: int) -> int:
        """An integer of [0, ``bound``)."""
        return int(below(bound, self._bits(1))[0])

    def order(self, count: int) -> NDArray[np.int64]:
        """The numbers below ``count`` in an order that is drawn."""
        return np.argsort(self._bits(count), kind="stable")

    def _bits(self, count: int) -> NDArray[np.uint64]:
        numbers = np.arange(self._drawn, self._drawn + count)
        self._drawn += count
        return hash_samples(self._seed, numbers, numbers)
