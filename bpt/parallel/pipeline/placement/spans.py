"""The costs of runs of consecutive partitions on each device: tables for the dynamic program of BLOCK.

Borders that cannot be those of the best cut into one run a device are left out by and by.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from bpt.config.proto import bpt_pb2 as pb
from bpt.parallel.pipeline.placement.loads import ROUNDING, Loads, excess
from bpt.parallel.pipeline.placement.partition_crossings import Floats, Ints

SLIGHT = 1e-10  # relative: what decides between equals


@dataclass(frozen=True)
class CostWeights:
    """The weights of the two parts of STEP_TIME: the slowest device's time, and the sum without overlap.

    None of them is 0, so that of placements that are equal in the one part that counts the better one is preferred.
    """

    slowest: float
    through: float

    @classmethod
    def of(cls, filling: float) -> CostWeights:
        """Return the weights of ``StepTime``, up to rounding."""
        return cls(max(1 - filling, SLIGHT), max(filling, SLIGHT))

    def cost(self, slowest: float, through: float) -> float:
        return self.slowest * slowest + self.through * through


def worst_table(costs: list[Floats]) -> list[Floats]:
    """Return ``table[j][b]``: the least worst cost of partitions ``[0, b)`` on devices ``0 .. j``."""
    table = [costs[0][0]]
    for cost in costs[1:]:
        table.append(np.maximum(table[-1][:, None], cost).min(0))
    return table


def sum_table(costs: list[Floats]) -> list[Floats]:
    """Return ``table[j][b]``: the least cost sum of the first ``j`` devices, if the next begins at border ``b``.

    Args:
        costs: of each device, from any of its borders (rows) to any of the next one's (columns).
    """
    table = [np.zeros(len(costs[0]))]
    for cost in costs:
        table.append((table[-1][:, None] + cost).min(0))
    return table


class SpanCosts:
    """Tables over runs ``[a, b)`` of partitions, 0 ≤ a < b ≤ n; other entries are infinite.

    Device 0 begins at partition 0 and no other device does; the last device ends at n and no other does.

    Attributes:
        slowest: for each device (n + 1, n + 1): seconds in which it computes, or in which messages travel to it, if
            that is more; infinite where the run does not fit into its memory, or has more work than its capacity.
        through: the same with the sum of both.
        fills: the same with the part of its memory that the run takes (``Loads.room``).
        excess: bytes that a run needs beyond the device's memory, not negative; and for work beyond its capacity that
            part of all bytes that it is of all work.
    """

    def __init__(self, loads: Loads) -> None:
        self.loads = loads
        n, m = loads.n, loads.m
        seconds = _Rectangles(n)
        size = _Rectangles(n)
        for producer, readers, second, byte in zip(
            loads.crossings.producers.tolist(),
            loads.crossings.readers,
            loads.crossings.seconds.tolist(),
            loads.crossings.bytes.tolist(),
            strict=True,
        ):
            # Stage 0 runs the layers without bottoms, so it receives nothing that they make.
            first = max(producer, 0)
            for reader in readers:
                seconds.add(first + 1, reader, reader + 1, n, second)
                size.add(first + 1, reader, reader + 1, n, byte)
                first = reader
        received, taken = seconds.table(), size.table()
        starts, ends = np.arange(n + 1)[:, None], np.arange(n + 1)[None, :]
        work, again, parameters, copied = map(_over, (loads.work, loads.again, loads.parameters, loads.copied))
        activations, added = _over(loads.activations), _most(loads.added)
        self.slowest: list[Floats] = []
        self.through: list[Floats] = []
        self.fills: list[Floats] = []
        self.excess: list[Floats] = []
        for device in range(m):
            here = (starts < ends) & ((starts == 0) == (device == 0)) & ((ends == n) == (device == m - 1))
            alive = _alive(loads, device)
            held = parameters + added + (alive - 1) * copied + alive * taken + loads.run_again(alive) * activations
            if device == 0:
                held = held + loads.source_memory
            lack = excess(held, loads.memory[device])
            if loads.has_capacities:
                lack = lack + excess(work, loads.capacity[device]) * (loads.memory_bound / loads.work.sum())
            self.excess.append(np.where(here, lack, np.inf))
            fits = here & (lack == 0)
            twice = device < m - 1 or loads.all_again
            working = (work + again * twice) / loads.speeds[device]
            self.slowest.append(np.where(fits, np.maximum(working, received), np.inf))
            self.through.append(np.where(fits, working + received, np.inf))
            self.fills.append(np.where(fits, held / loads.room[device], np.inf))


class _Rectangles:
    """Sums of constants over rectangles of a table, by differences."""

    def __init__(self, n: int) -> None:
        self.differences = np.zeros((n + 2, n + 2))

    def add(self, top: int, bottom: int, left: int, right: int, value: float) -> None:
        """Add to rows ``top .. bottom`` and columns ``left .. right``, both ends included."""
        if top <= bottom and left <= right:
            self.differences[top, left] += value
            self.differences[bottom + 1, left] -= value
            self.differences[top, right + 1] -= value
            self.differences[bottom + 1, right + 1] += value

    def table(self) -> Floats:
        sums: Floats = np.maximum(self.differences.cumsum(0).cumsum(1)[:-1, :-1], 0.0)
        return sums


def _over(values: Floats) -> Floats:
    """Return the sum over each run."""
    ends = np.concatenate([[0.0], values.cumsum()])
    sums: Floats = ends[None, :] - ends[:, None]
    return sums


def _most(values: Floats) -> Floats:
    """Return the greatest value over each run; 0 for other entries."""
    found = np.zeros((len(values) + 1, len(values) + 1))
    for start in range(len(values)):
        found[start, start + 1 :] = np.maximum.accumulate(values[start:])
    return found


def _alive(loads: Loads, device: int) -> float:
    """Return ``Loads.alive`` for one run a device."""
    behind = float(loads.m - device)
    match loads.problem.rule:
        case pb.PipelineParameter.DELAYED:
            return behind
        case pb.PipelineParameter.ONE_F_ONE_B:
            return min(behind / loads.problem.micro_batches, 1.0)
        case pb.PipelineParameter.ZERO_BUBBLE:
            return min(loads.m / loads.problem.micro_batches, 1.0)
    return loads.least_alive


@dataclass(frozen=True)
class PartitionCut:
    """A cut: the first partition of each device, the two parts of its time, and its cost."""

    starts: tuple[int, ...]
    slowest: float
    through: float
    cost: float


@dataclass(frozen=True)
class Cuts:
    """All cuts whose borders are in a given set.

    Attributes:
        borders: m + 1 arrays: device j runs from one of ``borders[j]`` to one of ``borders[j + 1]``.
        slowest, through, fills: of each device, as in ``SpanCosts``, for these borders only.
        weights: of both in the cost.
    """

    borders: list[Ints]
    slowest: list[Floats]
    through: list[Floats]
    fills: list[Floats]
    weights: CostWeights

    @classmethod
    def every(cls, spans: SpanCosts, weights: CostWeights) -> Cuts:
        """Return all cuts."""
        n, m = spans.loads.n, spans.loads.m
        borders = [np.array([0]), *([np.arange(n + 1)] * (m - 1)), np.array([n])]
        places = list(pairwise(borders))
        slowest, through, fills = (_at(costs, places) for costs in (spans.slowest, spans.through, spans.fills))
        return cls(borders, slowest, through, fills, weights)

    def least_through(self, limit: float) -> PartitionCut:
        """Return, of the cuts whose devices' times are within ``limit``, the one with the least sum without overlap."""
        allowed = self._within(limit)
        table = sum_table(allowed)
        places = [0]
        for before, costs in zip(reversed(table[:-1]), reversed(allowed), strict=True):
            places.insert(0, int((before + costs[:, places[0]]).argmin()))
        runs = zip(self.slowest, pairwise(places), strict=True)
        slowest = max(float(costs[place]) for costs, place in runs)
        through = float(table[-1][0])
        starts = tuple(int(border[place]) for border, place in zip(self.borders[:-1], places[:-1], strict=True))
        return PartitionCut(starts, slowest, through, self.weights.cost(slowest, through))

    def filling(self, low: float, high: float) -> Cuts:
        """Return the cuts that fill each device's memory from ``low`` to ``high``."""
        low, high = low * (1 - ROUNDING), high * (1 + ROUNDING)
        inside = [(low <= fill) & (fill <= high) for fill in self.fills]
        slowest, through = (
            [np.where(here, costs, np.inf) for costs, here in zip(tables, inside, strict=True)]
            for tables in (self.slowest, self.through)
        )
        return Cuts(self.borders, slowest, through, self.fills, self.weights)

    def narrowed(self, cost: float, slowest: float, through: float) -> Cuts:
        """Return the cuts without borders whose cuts all cost more than ``cost``.

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
    """Return the rows and columns of each device's table at its places."""
    return [costs[np.ix_(*place)] for costs, place in zip(tables, places, strict=True)]
