"""What is told of ranks that are lost, whatever carries the messages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bpt.errors import LostRankError


def lost_rank_error(method: str, ranks: Sequence[int], names: Iterable[str]) -> LostRankError:
    """The error of a call that cannot be completed any more.

    Args:
        method: in which it was noticed.
        ranks: of the communicator, that are lost; none: that is not known.
        names: what to call them.
    """
    who = ", ".join(names) or "another rank"
    return LostRankError(
        f"{who} is gone (noticed in {method}): it was killed, ran out of memory, or its machine or network failed. "
        "Start again; --snapshot auto goes on from the newest snapshot",
        ranks,
    )


def name_of(rank: int, host: str) -> str:
    """A rank of the world, for a message."""
    return f"rank {rank} (host {host})"
