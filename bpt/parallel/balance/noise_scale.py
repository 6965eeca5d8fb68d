"""NoiseScale: the batch that the noise of the gradients is worth (McCandlish et al., 2018, arXiv 1812.06162).

The gradient of b samples is that of all data, G, and noise: E|g_b|^2 = |G|^2 + S / b, where S is the variance of the
gradient of one sample, over all parameters. A batch much smaller than S / |G|^2 learns little from a step; a much
larger one wastes samples. Each rank has the gradient g_i of its b_i samples; g is that of all B samples. For uneven
shares (Cannikin, 2024) the analysis of variance gives estimates without bias from the norms of n ranks and of g:

    S = (sum of b_i |g_i|^2 - B |g|^2) / (n - 1)        |G|^2 = |g|^2 - S / B

Both are smoothed before they are divided, since a quotient of noisy numbers is biased.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

KEPT = 0.95  # weight of the previous estimate in the moving average
INTERVAL = 10  # iterations between two changes of the batch
MOST_AT_ONCE = 2  # factor by which the batch changes at most


class NoiseScale:
    """Decides the passes of an iteration by the noise of the gradients; equal on all ranks.

    Args:
        batch: samples of a pass of all ranks together.
        least, most: limits of the passes.

    Attributes:
        passes: of the next iteration.
    """

    def __init__(self, batch: int, least: int, most: int) -> None:
        self._batch, self._least, self._most = batch, least, most
        self._variance = self._square = 0.0  # smoothed S and |G|^2
        self._seen = 0
        self.passes = least

    def add(self, counts: Sequence[int], norms: Sequence[float], norm: float) -> None:
        """Add an iteration, and decide the passes of the next one.

        An iteration whose norms are not finite is left out: its gradients have overflown.

        Args:
            counts: samples of each rank.
            norms: the squared norms of the mean gradients of these samples.
            norm: the squared norm of the mean gradient of all samples.
        """
        own = [(count, size) for count, size in zip(counts, norms, strict=True) if count]
        if len(own) < 2 or not all(map(math.isfinite, (norm, *(size for _, size in own)))):
            return
        total = sum(count for count, _ in own)
        variance = (sum(count * size for count, size in own) - total * norm) / (len(own) - 1)
        self._variance = KEPT * self._variance + (1 - KEPT) * variance
        self._square = KEPT * self._square + (1 - KEPT) * (norm - variance / total)
        self._seen += 1
        if self._seen % INTERVAL == 0:
            self.passes = self._wanted()

    @property
    def samples(self) -> float:
        """The noise scale S / |G|^2 in samples; infinite if the gradients are nothing but noise."""
        if self._variance <= 0:
            return 0.0
        return self._variance / self._square if self._square > 0 else float("inf")

    def _wanted(self) -> int:
        wanted = min(self.samples / self._batch, float(self._most))
        step = min(max(wanted, self.passes / MOST_AT_ONCE), self.passes * MOST_AT_ONCE)
        return min(max(round(step), self._least), self._most)

    def state(self) -> tuple[float, ...]:
        """Return what a run that continues this one needs."""
        return float(self.passes), self._variance, self._square, float(self._seen)

    def load(self, state: Sequence[float]) -> None:
        """Continue from a ``state()``; an empty one means that nothing was seen."""
        passes, self._variance, self._square, seen = state or (self._least, 0.0, 0.0, 0)
        self._seen = int(seen)
        self.passes = min(max(int(passes), self._least), self._most)
