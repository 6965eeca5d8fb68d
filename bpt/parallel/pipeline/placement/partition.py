"""Partitions: heavy layers stand alone, light ones are joined (Hybrid paper, section 3.1.1)."""

from __future__ import annotations

from itertools import pairwise

from bpt.base.errors import PrototxtError
from bpt.base.origin import Origin
from bpt.parallel.pipeline.placement.problem import Problem

SHARE = 16  # by rule a layer is heavy if it has this fraction (1/16) of a device's share of the work


class TooManyStagesError(PrototxtError):
    """An error: the net cannot be cut into that many stages.

    Args:
        reason: why, and how many there are to be.
        possible: how many there may be.
        origin: where their number stands.
    """

    def __init__(self, reason: str, possible: int, origin: Origin | None = None) -> None:
        self.reason = reason
        self.possible = possible
        super().__init__(f"pipeline_param: {reason}; set num_stages: {possible} or less", origin)

    def at(self, origin: Origin) -> TooManyStagesError:
        """Return this error with a place."""
        return TooManyStagesError(self.reason, self.possible, origin)


class PartitionsError(PrototxtError):
    """An error: the net cannot be cut into as many partitions as the text asks for."""


def partitions(problem: Problem, count: int = 0) -> tuple[int, ...]:
    """Return the first layer of each partition, ascending from 0.

    The paper calls layers heavy that are "highly functional" and names no number. Here, by rule (``count`` 0), a run
    of layers that must stay together is heavy if it has more work than 1/16 of what an equal share of the work for
    each device would be, and neighbours that are light are joined as long as their sum is not heavy. A ``count``
    chooses the limit: the lowest one that gives no more partitions; if it gives fewer, the heaviest that can be cut
    are cut.

    Raises:
        PartitionsError: the net cannot be cut into that many, or there would be fewer partitions than devices.
    """
    check_enough(problem)
    devices, possible = len(problem.devices), len(problem.cuts)
    if not count:
        starts = _joined(problem, problem.work / (SHARE * devices))
        return _cut_up_to(problem, starts, devices)
    if not devices <= count <= possible:
        raise PartitionsError(
            f"partitions: {count}: there are {devices} stages, and the net can be cut into "
            f"{possible} partitions; set a number from {devices} to {possible}, or 0"
        )
    return _cut_up_to(problem, _joined(problem, _limit(problem, count)), count)


def check_enough(problem: Problem) -> None:
    """Raise a TooManyStagesError if the net cannot be cut into as many partitions as there are devices."""
    devices, possible = len(problem.devices), len(problem.cuts)
    if possible < devices:
        raise TooManyStagesError(
            f"the net can be cut into {possible} stage{'s' * (possible != 1)} at most, because {_why(problem)}, "
            f"but there are to be {devices}",
            possible,
        )


def _why(problem: Problem) -> str:
    """Return what keeps a net from being cut into more partitions."""
    reasons = []
    if problem.together:
        a, b = max(problem.together, key=lambda run: run[1] - run[0])
        names = f'"{problem.costs[a].name}" to "{problem.costs[b - 1].name}"'
        reasons.append(f"layers that share parameters, or copies of a blob, stay together ({names})")
    if problem.beside_sources:
        a, b = problem.beside_sources[0]
        names = ", ".join(f'"{cost.name}"' for cost in problem.costs[a:b])
        reasons.append(f"data layers stay with the first layer that computes ({names})")
    if problem.blocks:
        a, b = max(problem.blocks, key=lambda run: run[1] - run[0])
        names = f'"{problem.costs[a].name}" to "{problem.costs[b - 1].name}"'
        reasons.append(f"layers of a block stay together ({names})")
    return " and ".join(reasons) or f"it has {len(problem.costs)} layer{'s' * (len(problem.costs) != 1)}"


def pieces(problem: Problem) -> list[float]:
    """Return the work of each of the smallest possible partitions."""
    ends = [*problem.cuts[1:], len(problem.costs)]
    return [sum(cost.work for cost in problem.costs[a:b]) for a, b in zip(problem.cuts, ends, strict=True)]


def _joined(problem: Problem, limit: float) -> list[int]:
    """Return the starts of partitions; neighbours are joined as long as their sum is within ``limit``."""
    starts: list[int] = []
    total = 0.0
    for start, work in zip(problem.cuts, pieces(problem), strict=True):
        if starts and total + work <= limit:
            total += work
        else:
            starts.append(start)
            total = work
    return starts


def _limit(problem: Problem, count: int) -> float:
    """Return the least limit that joins the net to ``count`` partitions or fewer."""
    low, high = 0.0, problem.work * (1 + 1e-9)
    for _ in range(60):
        middle = (low + high) / 2
        if len(_joined(problem, middle)) <= count:
            high = middle
        else:
            low = middle
    return high


def _cut_up_to(problem: Problem, starts: list[int], count: int) -> tuple[int, ...]:
    """Cut the heaviest partitions in two, as evenly as possible, until there are ``count``."""
    work = dict(zip(problem.cuts, pieces(problem), strict=True))
    while len(starts) < count:
        best: tuple[float, int] | None = None
        for start, end in pairwise([*starts, len(problem.costs)]):
            inner = [cut for cut in problem.cuts if start < cut < end]
            total = sum(work[cut] for cut in problem.cuts if start <= cut < end)
            if inner and (best is None or total > best[0]):
                best = total, min(inner, key=lambda cut: _heavier(work, start, cut, total))
        assert best is not None, (starts, count)
        starts = sorted([*starts, best[1]])
    return tuple(starts)


def _heavier(work: dict[int, float], start: int, cut: int, total: float) -> float:
    """Return the work of the heavier of the two parts that a cut leaves."""
    first = sum(value for layer, value in work.items() if start <= layer < cut)
    return max(first, total - first)
