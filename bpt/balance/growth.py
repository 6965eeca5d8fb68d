"""How the memory of a rank grows with its batch, and so the largest batch that fits."""

from __future__ import annotations

MARGIN = 0.8  # part of the free memory that is counted on; the rest is for fragments, buffers and other programs
MOST = 2**31 - 1  # samples; no batch_size is larger


class Growth:
    """Predicts memory from what smaller batches took, so that no batch is tried that may not fit.

    Args:
        guess: bytes a sample, until two sizes have been seen.
        least: bytes a sample at least, whatever has been seen: small growth drowns in what is there anyway.
    """

    def __init__(self, guess: float, least: float) -> None:
        self._guess = guess
        self._least = max(least, 1.0)
        self._seen: list[tuple[int, int]] = []  # size, bytes; rising sizes

    def note(self, size: int, peak: int) -> None:
        """A batch of ``size`` took ``peak`` bytes at most. Only sizes larger than all before tell something."""
        if size > self.largest:
            self._seen.append((size, peak))

    @property
    def largest(self) -> int:
        """The largest size seen."""
        return self._seen[-1][0] if self._seen else 0

    @property
    def per_sample(self) -> float:
        """Bytes that one more sample takes: as over the last step or over all of them, whichever is more."""
        if len(self._seen) < 2:
            return max(self._guess, self._least)
        size, peak = self._seen[-1]
        slopes = [(peak - bytes) / (size - smaller) for smaller, bytes in (self._seen[0], self._seen[-2])]
        return max(*slopes, self._least)

    def cap(self, room: int) -> int:
        """The largest batch that fits if ``room`` bytes are free besides what the largest one so far took."""
        return min(self.largest + max(0, int(MARGIN * room / self.per_sample)), MOST)
