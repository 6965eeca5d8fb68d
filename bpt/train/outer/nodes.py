"""NodeFacts: what the server must know of the machines that compute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class NodeFacts:
    """The facts of a rank, or of all ranks of a computing node.

    Attributes:
        host: its name; those of several hosts with "+" between them.
        frequency: μ, for the first batch; ``None``: unknown.
        threads: that it computes with.
    """

    host: str
    frequency: float | None
    threads: int

    @classmethod
    def joined(cls, ranks: Sequence[NodeFacts]) -> NodeFacts:
        """Return the facts of a computing node of these ranks, which share its work."""
        return cls(
            "+".join(dict.fromkeys(rank.host for rank in ranks)),
            joined_power([rank.frequency for rank in ranks]),
            sum(rank.threads for rank in ranks),
        )


def joined_power(ranks: Sequence[float | None]) -> float | None:
    """Return the power of a computing node of ranks with such powers; ``None`` if one is unknown."""
    known = [power for power in ranks if power is not None]
    return sum(known) if len(known) == len(ranks) else None
