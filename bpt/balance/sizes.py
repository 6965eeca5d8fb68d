"""Which batch sizes are worth a measurement."""

from __future__ import annotations


def ladder(batch: int, ranks: int) -> list[int]:
    """Sizes from 1 up to the even share of ``batch``, each at most twice the one before, rising."""
    sizes = [-(-batch // ranks)]
    while sizes[-1] > 1:
        sizes.append(-(-sizes[-1] // 2))
    return sizes[::-1]
