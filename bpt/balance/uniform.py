"""UNIFORM: every rank gets the same number of samples."""

from __future__ import annotations

from bpt.balance.base import tile
from bpt.graph.part import slice_bounds
from bpt.share import Share


class Uniform:
    """Shares whose sizes differ by at most one; the first ranks get the larger ones."""

    def shares(self, total: int, ranks: int) -> tuple[Share, ...]:
        """See Balance."""
        return tile([stop - start for start, stop in slice_bounds(total, ranks)])
