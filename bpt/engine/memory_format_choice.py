"""A choice between two ways to compute the same numbers: made by measuring, in the first iterations of training."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, ClassVar

from bpt.config.proto import bpt_pb2 as pb

MARGIN = 0.9  # contiguous must be faster than this, since channels-last hardly ever loses and times are noisy
WARM_UP = 2  # iterations of each candidate that do not count: memory and kernels are made ready


class EngineChoice:
    """Tries the candidates in turn, one an iteration, and settles on the faster.

    Every trial is an iteration of training like any other; nothing is computed twice.

    Args:
        engine: the field of this name; anything but AUTO is settled from the start.

    Attributes:
        engine: what to compute by now.
        seconds: of the iterations by each candidate.
    """

    names: ClassVar[Any]  # the protobuf enum
    candidates: ClassVar[tuple[int, int]]  # of equally fast ones the first is taken
    auto: ClassVar[int]
    trials: ClassVar[int]  # iterations of each candidate that count

    def __init__(self, engine: int) -> None:
        self.seconds: dict[int, list[float]] = {candidate: [] for candidate in self.candidates}
        self._turns = self._plan()
        self.settled = engine != self.auto
        self.engine = engine if self.settled else next(self._turns)

    @classmethod
    def _plan(cls) -> Iterator[int]:
        """Candidates in turn: first the warm-up of each, then a, b, b, a, … so that a drift hits both alike."""
        first, second = cls.candidates
        for candidate in cls.candidates:
            yield from [candidate] * WARM_UP
        for trial in range(cls.trials):
            yield from (first, second) if trial % 2 == 0 else (second, first)

    def record(self, seconds: float) -> bool:
        """Note how long the iteration took; whether this settled the choice."""
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
        """Try no more: use ``engine``, or what was best so far; a choice once made stands."""
        if not self.settled:
            self.engine = self._best() if engine is None else engine
            self.settled = True

    def _best(self) -> int:
        return min(self.candidates, key=self.fastest)

    def fastest(self, engine: int) -> float:
        """Return seconds of the fastest iteration by this candidate after its warm-up: what others did to the machine
        meanwhile only adds to a time. Infinite if there was none.
        """
        return min(self.seconds[engine][WARM_UP:], default=math.inf)

    def __str__(self) -> str:
        name: str = self.names.Name(self.engine)
        seconds = {engine: self.fastest(engine) for engine in self.candidates}
        measured = {engine: fastest for engine, fastest in seconds.items() if math.isfinite(fastest)}
        times = ", ".join(f"{self.names.Name(engine)} {fastest * 1e3:.3g} ms" for engine, fastest in measured.items())
        return f"{name} ({times} an iteration)" if times else name


class LayoutChoice(EngineChoice):
    """Between contiguous blobs and those whose channels are last; see EngineChoice.

    Both give the same numbers up to rounding; which is faster depends on the net, the batch and the machine.
    """

    names = pb.SolverParameter.Engine
    candidates = (pb.SolverParameter.CONTIGUOUS, pb.SolverParameter.CHANNELS_LAST)
    auto = pb.SolverParameter.AUTO
    trials = 3

    def _best(self) -> int:
        contiguous, channels_last = map(self.fastest, self.candidates)
        return self.candidates[0] if contiguous < MARGIN * channels_last else self.candidates[1]


class InnerChoice(EngineChoice):
    """Between torch's own threads and the tasks of the inner layer; see EngineChoice."""

    names = pb.InnerParameter.Engine
    candidates = (pb.InnerParameter.LIBRARY, pb.InnerParameter.TASK_DAG)
    auto = pb.InnerParameter.AUTO
    trials = 5
