"""Choices that the first iterations of training measure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, ClassVar

WARM_UP = 2  # iterations of each candidate that do not count: memory and kernels are made ready


class MeasuredChoice:
    """Tries two candidates in turn, one an iteration, and settles on the faster.

    Every trial is an iteration of training like any other, so no work is done twice.

    Args:
        engine: the field of this name; any value except AUTO is settled from the start.

    Attributes:
        engine: the candidate in use.
        seconds: the times of the iterations by each candidate.
        settled: whether the choice is final.
    """

    names: ClassVar[Any]  # the protobuf enum
    candidates: ClassVar[tuple[int, int]]  # the first is chosen if both are equally fast
    auto: ClassVar[int]
    trials: ClassVar[int]  # iterations of each candidate that count

    def __init__(self, engine: int) -> None:
        self.seconds: dict[int, list[float]] = {candidate: [] for candidate in self.candidates}
        self._turns = self._plan()
        self.settled = engine != self.auto
        self.engine = engine if self.settled else next(self._turns)

    @classmethod
    def _plan(cls) -> Iterator[int]:
        """Yield the candidates: the warm-up of each, then a, b, b, a, … so that a drift affects both equally."""
        first, second = cls.candidates
        for candidate in cls.candidates:
            yield from [candidate] * WARM_UP
        for trial in range(cls.trials):
            yield from (first, second) if trial % 2 == 0 else (second, first)

    def record(self, seconds: float) -> bool:
        """Record how long the iteration took; return whether this settled the choice."""
        if self.settled:
            return False
        self.seconds[self.engine].append(seconds)
        following = next(self._turns, None)
        if following is None:
            self.settle()
        else:
            self.engine = following
        return self.settled

    def settle(self, engine: int | None = None) -> None:
        """Stop the trials and use ``engine``, by default the best one so far; a final choice stays."""
        if not self.settled:
            self.engine = self._best() if engine is None else engine
            self.settled = True

    def _best(self) -> int:
        return min(self.candidates, key=self.fastest)

    def fastest(self, engine: int) -> float:
        """Return the seconds of the fastest iteration by this candidate after its warm-up; infinite if there was none.

        The fastest one counts, because other programs only add to a time.
        """
        return min(self.seconds[engine][WARM_UP:], default=math.inf)

    def __str__(self) -> str:
        name: str = self.names.Name(self.engine)
        seconds = {engine: self.fastest(engine) for engine in self.candidates}
        measured = {engine: fastest for engine, fastest in seconds.items() if math.isfinite(fastest)}
        times = ", ".join(f"{self.names.Name(engine)} {fastest * 1e3:.3g} ms" for engine, fastest in measured.items())
        return f"{name} ({times} an iteration)" if times else name
