"""A resource that serves one after the other."""

from __future__ import annotations


class Fifo:
    """First come, first served: a link in one direction, or the server's arithmetic.

    Attributes:
        free: from when on nobody is served.
        busy: seconds that it has served, or will, all together.
    """

    def __init__(self) -> None:
        self.free = 0.0
        self.busy = 0.0

    def serve(self, now: float, seconds: float) -> float:
        """Somebody comes at ``now`` and takes ``seconds``; returns when it is its turn. Call in the order of coming."""
        start = max(now, self.free)
        self.free = start + seconds
        self.busy += seconds
        return start
