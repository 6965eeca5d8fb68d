"""Which memory layout the blobs of a net have: chosen by measuring, in the first iterations of training.

Channels-last (NHWC) and contiguous (NCHW) compute the same numbers up to rounding; which is faster depends on
the net, the batch and the machine, and no rule of thumb predicts it.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator

import torch
from torch import Tensor

from bpt.proto import bpt_pb2 as pb

Engine = pb.SolverParameter.Engine
FORMATS = {
    pb.SolverParameter.CONTIGUOUS: torch.contiguous_format,
    pb.SolverParameter.CHANNELS_LAST: torch.channels_last,
}
WARM_UP = 2  # iterations of each layout that do not count: memory and kernels are made ready
TRIALS = 4  # iterations of each layout that count


def laid_out(tensor: Tensor, engine: int) -> Tensor:
    """``tensor`` in the layout of ``engine``; only blobs with four axes have a choice."""
    if engine != pb.SolverParameter.CHANNELS_LAST or tensor.dim() != 4:
        return tensor.contiguous()
    if tensor.shape[1] == 1:
        # With one channel both layouts are one run of memory; the strides alone tell kernels which is meant.
        _, _, height, width = tensor.shape
        return tensor.contiguous().as_strided(tensor.shape, (height * width, 1, width, 1))
    return tensor.contiguous(memory_format=torch.channels_last)


class LayoutChoice:
    """Tries the layouts in turn, one an iteration, and settles on the faster.

    Every trial is an iteration of training like any other; nothing is computed twice.

    Args:
        engine: the solver's ``engine``; anything but AUTO is settled from the start.
    """

    def __init__(self, engine: int) -> None:
        self.settled: int | None = None if engine == pb.SolverParameter.AUTO else engine
        self.seconds: dict[int, list[float]] = {candidate: [] for candidate in FORMATS}
        self._turns = self._plan()
        self.engine = self.settled if self.settled is not None else next(self._turns)

    @staticmethod
    def _plan() -> Iterator[int]:
        """Layouts in turn: first the warm-up of each, then a, b, b, a, … so that a drift hits both alike."""
        first, second = FORMATS
        for candidate in (first, second):
            yield from [candidate] * WARM_UP
        for trial in range(TRIALS):
            yield from (first, second) if trial % 2 == 0 else (second, first)

    def record(self, seconds: float) -> bool:
        """Note how long the iteration took; whether this settled the choice."""
        if self.settled is not None:
            return False
        self.seconds[self.engine].append(seconds)
        following = next(self._turns, None)
        if following is not None:
            self.engine = following
            return False
        self.engine = self.settled = min(FORMATS, key=self.typical)
        return True

    def typical(self, engine: int) -> float:
        """Median seconds of an iteration in this layout, without its warm-up."""
        return statistics.median(self.seconds[engine][WARM_UP:])

    def __str__(self) -> str:
        times = ", ".join(f"{Engine.Name(engine)} {self.typical(engine) * 1e3:.3g} ms" for engine in FORMATS)
        return f"{Engine.Name(self.engine)} ({times} an iteration)"
