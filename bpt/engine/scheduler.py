"""Schedulers: each yields the instructions of a rank's iterations, and of a pass that is only to be looked at."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from bpt.engine.instructions import Forward, Instruction
from bpt.engine.synchronous import synchronous

TEST_BATCH = -1  # in the place of a batch's number, where batches that are trained may be under way

AppliedBatch = tuple[int, Sequence[int] | None]
"""The iteration whose gradient an update applies, and the segments that it is of; ``None``: all of this rank's."""


class Scheduler(Protocol):
    """Says *when*; an Operator says where and how."""

    def training(self, iteration: int, first: int) -> Iterable[Instruction]:
        """Return the instructions of one training iteration of this rank; it ends with Wait and Update.

        Args:
            first: the iteration at which the run began, here and in ``applied``. What was under way before is lost.
        """

    def forward(self) -> Iterable[Instruction]:
        """Return those of a pass without a backward pass: a test."""

    def applied(self, iteration: int, first: int) -> Sequence[AppliedBatch]:
        """Return the gradients that the update at the end of ``iteration`` applies; empty: there is none yet."""

    @property
    def micro_batches(self) -> int:
        """Of an iteration; 0: batches are not divided."""


@dataclass(frozen=True)
class Synchronous:
    """All segments on one rank; see ``synchronous``.

    Attributes:
        segments: number of segments of the net.
        passes: the solver's iter_size.
        broadcast, overlap, joined: see ``synchronous``.
    """

    segments: int
    passes: int = 1
    broadcast: bool = False
    overlap: bool = True
    joined: bool = False
    micro_batches: int = field(default=0, init=False)

    def training(self, iteration: int, first: int) -> Iterator[Instruction]:
        """See Scheduler."""
        return synchronous(self.segments, self.passes, self.broadcast, self.overlap, self.joined)

    def forward(self) -> Iterator[Instruction]:
        """See Scheduler."""
        return map(Forward, range(self.segments))

    def applied(self, iteration: int, first: int) -> Sequence[AppliedBatch]:
        """See Scheduler."""
        return [(iteration, None)]
