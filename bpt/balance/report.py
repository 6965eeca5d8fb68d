"""Log lines about how a batch is divided, what was predicted of it, and what was seen."""

from __future__ import annotations

from collections.abc import Sequence

from bpt.balance.static import imbalance
from bpt.share import Share


def lines(
    shares: Sequence[Share],
    predicted: Sequence[float] | None = None,
    seen: Sequence[float] | None = None,
    ranks: Sequence[int] | None = None,
) -> list[str]:
    """A line a rank, and one about the imbalance, max / mean - 1 of the times.

    Args:
        predicted: seconds of an iteration on each rank; ``None``: nothing is known (balance UNIFORM).
        seen: the same, measured in training, without waiting for others.
        ranks: the numbers of the ranks that have the shares; by default 0, 1, …
    """
    times = {"predicted": predicted, "seen": seen}
    known = {word: seconds for word, seconds in times.items() if seconds is not None}
    result = []
    for place, (rank, share) in enumerate(zip(ranks or range(len(shares)), shares, strict=True)):
        cells = [f"{word} {seconds[place] * 1e3:.4g} ms" for word, seconds in known.items()]
        result.append(", ".join([f"Balance: rank {rank} trains {share.count} of {share.total} samples", *cells]))
    if known:
        parts = [f"{word} {imbalance(seconds):.1%}" for word, seconds in known.items()]
        result.append(f"Balance: imbalance {', '.join(parts)} (slowest rank over the mean)")
    return result
