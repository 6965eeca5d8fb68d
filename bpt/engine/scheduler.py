"""Schedulers: each yields the instructions of a rank's iterations, and of a pass that is only evaluated."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from bpt.engine.instructions import Forward, Instruction
from bpt.engine.synchronous import synchronous

TEST_BATCH = -1  # the number of a batch that is only evaluated, while batches that are trained may be under way

AppliedBatch = tuple[int, Sequence[int] | None]
"""The iteration whose gradient an update applies, and the segments of this gradient; ``None``: all of this rank."""


class Scheduler(Protocol):
    """Says when a rank does what; an Operator says where and how."""

    def training(self, iteration: int, first: int) -> Iterable[Instruction]:
        """Return the instructions of one training iteration of this rank; it ends with Wait and UpdateWeights.

        Args:
            first: the iteration at which the run began, here and in ``applied``. Older batches are lost.
        """

    def forward(self) -> Iterable[Instruction]:
        """Return the instructions of a pass without a backward pass, such as that of a test."""

    def applied(self, iteration: int, first: int) -> Sequence[AppliedBatch]:
        """Return the gradients that the update at the end of ``iteration`` applies; empty: there is none yet."""

    @property
    def micro_batches(self) -> int:
        """The number of micro-batches of an iteration; 0: batches are not divided."""


@dataclass(frozen=True)
class Synchronous:
    """The scheduler of a rank that runs all segments; its fields are the parameters of ``synchronous``."""

    segments: int
    passes: int = 1
    broadcast: bool = False
    overlap: bool = True
    joined: bool = False
    micro_batches: int = field(default=0, init=False)

    def training(self, iteration: int, first: int) -> Iterator[Instruction]:
        return synchronous(self.segments, self.passes, self.broadcast, self.overlap, self.joined)

    def forward(self) -> Iterator[Instruction]:
        return map(Forward, range(self.segments))

    def applied(self, iteration: int, first: int) -> Sequence[AppliedBatch]:
        return [(iteration, None)]
