"""Which memory layout the blobs of a net have: chosen by measuring, in the first iterations of training.

Channels-last (NHWC) and contiguous (NCHW) compute the same numbers up to rounding; which is faster depends on
the net, the batch and the machine.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from bpt.proto import bpt_pb2 as pb

Engine = pb.SolverParameter.Engine
LAYOUTS = (pb.SolverParameter.CONTIGUOUS, pb.SolverParameter.CHANNELS_LAST)
WARM_UP = 2  # iterations of each layout that do not count: memory and kernels are made ready
TRIALS = 3  # iterations of each layout that count
MARGIN = 0.9  # contiguous must be faster than this, since channels-last hardly ever loses and times are noisy


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
        self.seconds: dict[int, list[float]] = {candidate: [] for candidate in LAYOUTS}
        self._turns = self._plan()
        self.settled = engine != pb.SolverParameter.AUTO
        self.engine = engine if self.settled else next(self._turns)

    @staticmethod
    def _plan() -> Iterator[int]:
        """Layouts in turn: first the warm-up of each, then a, b, b, a, … so that a drift hits both alike."""
        first, second = LAYOUTS
        for candidate in (first, second):
            yield from [candidate] * WARM_UP
        for trial in range(TRIALS):
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
            self.engine = engine or self._best()
            self.settled = True

    def _best(self) -> int:
        contiguous, channels_last = (self.fastest(candidate) for candidate in LAYOUTS)
        if contiguous < MARGIN * channels_last:
            return pb.SolverParameter.CONTIGUOUS
        return pb.SolverParameter.CHANNELS_LAST

    def fastest(self, engine: int) -> float:
        """Seconds of the fastest iteration in this layout after its warm-up: what others did to the machine
        meanwhile only adds to a time. Infinite if there was none."""
        return min(self.seconds[engine][WARM_UP:], default=math.inf)

    def __str__(self) -> str:
        name = Engine.Name(self.engine)
        if not any(self.seconds.values()):
            return name
        times = ", ".join(f"{Engine.Name(engine)} {self.fastest(engine) * 1e3:.3g} ms" for engine in LAYOUTS)
        return f"{name} ({times} an iteration)"
