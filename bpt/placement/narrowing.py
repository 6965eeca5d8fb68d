"""Cuts of a net into one run a device, where borders that cannot be those of the best one are left out by and by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from bpt.placement.loads import ROUNDING, Floats, Ints
from bpt.placement.spans import SpanCosts
from bpt.placement.tables import sum_table
from bpt.placement.weights import Weights


@dataclass(frozen=True)
class Cut:
    """First partitions of the devices; seconds of the slowest one, of all without overlap, and the cost."""

    starts: tuple[int, ...]
    slowest: float
    through: float
    cost: float


@dataclass(frozen=True)
class Cuts:
    """All cuts whose borders are among some.

    Attributes:
        borders: m + 1 arrays: device j runs from one of ``borders[j]`` to one of ``borders[j + 1]``.
        slowest, through, fills: of each device, as in ``SpanCosts``, for these borders only.
        weights: of both in the cost.
    """

    borders: list[Ints]
    slowest: list[Floats]
    through: list[Floats]
    fills: list[Floats]
    weights: Weights

    @classmethod
    def every(cls, spans: SpanCosts, weights: Weights) -> Cuts:
        """All there are."""
        n, m = spans.loads.n, spans.loads.m
        borders = [np.array([0]), *([np.arange(n + 1)] * (m - 1)), np.array([n])]
        places = list(pairwise(borders))
        slowest, through, fills = (_at(costs, places) for costs in (spans.slowest, spans.through, spans.fills))
        return cls(borders, slowest, through, fills, weights)

    def least_through(self, limit: float) -> Cut:
        """Of the cuts whose devices' times are all within ``limit``, the one with the least seconds without overlap."""
        allowed = self._within(limit)
        table = sum_table(allowed)
        places = [0]
        for before, costs in zip(reversed(table[:-1]), reversed(allowed), strict=True):
            places.insert(0, int((before + costs[:, places[0]]).argmin()))
        runs = zip(self.slowest, pairwise(places), strict=True)
        slowest = max(float(costs[place]) for costs, place in runs)
        through = float(table[-1][0])
        starts = tuple(int(border[place]) for border, place in zip(self.borders[:-1], places[:-1], strict=True))
        return Cut(starts, slowest, through, self.weights.cost(slowest, through))

    def filling(self, low: float, high: float) -> Cuts:
        """Those that fill each device's memory from ``low`` to ``high``."""
        low, high = low * (1 - ROUNDING), high * (1 + ROUNDING)
        inside = [(low <= fill) & (fill <= high) for fill in self.fills]
        slowest, through = (
            [np.where(here, costs, np.inf) for costs, here in zip(tables, inside, strict=True)]
            for tables in (self.slowest, self.through)
        )
        return Cuts(self.borders, slowest, through, self.fills, self.weights)

    def narrowed(self, cost: float, slowest: float, through: float) -> Cuts:
        """Without borders of which all cuts are dearer than ``cost``.

        Args:
            slowest, through: seconds that every cut takes at least.
        """
        cost *= 1 + ROUNDING
        allowed = self._within((cost - self.weights.through * through) / self.weights.slowest)
        most = (cost - self.weights.slowest * slowest) / self.weights.through
        before = sum_table(allowed)
        behind = sum_table([costs.T for costs in reversed(allowed)])[::-1]
        kept = [np.flatnonzero(a + b <= most) for a, b in zip(before, behind, strict=True)]
        places = list(pairwise(kept))
        borders = [border[keep] for border, keep in zip(self.borders, kept, strict=True)]
        tables = [_at(costs, places) for costs in (self.slowest, self.through, self.fills)]
        return Cuts(borders, tables[0], tables[1], tables[2], self.weights)

    def _within(self, limit: float) -> list[Floats]:
        return [np.where(a <= limit, b, np.inf) for a, b in zip(self.slowest, self.through, strict=True)]


def _at(tables: list[Floats], places: Sequence[tuple[Ints, Ints]]) -> list[Floats]:
    """Of each device's table the rows and columns at its places."""
    return [costs[np.ix_(*place)] for costs, place in zip(tables, places, strict=True)]
