"""The schedule of a divided update: each segment waits for its weights before it first runs forward.

The slices of all segments travel from the end of an iteration on, in the order of the next forward pass. ::

    3 segments                 G0 F0 G1 F1 G2 F2 B2 X2 B1 X1 B0 X0 W U
    iter_size 2, 1 segment     G0 F0 B0 F0 B0 X0 W U
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from bpt.engine.instructions import Forward, ForwardBackward, Gather, Instruction
from bpt.engine.scheduler import AppliedBatch, Scheduler


@dataclass(frozen=True)
class GatherAhead:
    """A scheduler in which Gather comes before the first forward pass of each of ``segments``.

    Attributes:
        within: of the iterations; see Scheduler.
        segments: those with parameters whose update is divided.
    """

    within: Scheduler
    segments: tuple[int, ...]

    @property
    def micro_batches(self) -> int:
        """The number of micro-batches of an iteration; 0 if batches are not divided."""
        return self.within.micro_batches

    def training(self, iteration: int, first: int) -> Iterator[Instruction]:
        """Return the instructions of a training iteration."""
        return self._gathered(self.within.training(iteration, first))

    def forward(self) -> Iterator[Instruction]:
        """Return the instructions of a pass without a backward pass."""
        return self._gathered(self.within.forward())

    def applied(self, iteration: int, first: int) -> Sequence[AppliedBatch]:
        """Return the gradients that the update at the end of ``iteration`` applies."""
        return self.within.applied(iteration, first)

    def _gathered(self, instructions: Iterable[Instruction]) -> Iterator[Instruction]:
        listed = list(instructions)
        run = {each.segment for each in listed if isinstance(each, Forward | ForwardBackward)}
        yield from (Gather(segment) for segment in self.segments if segment not in run)  # others run them in their way
        waiting = set(self.segments) & run
        for each in listed:
            if isinstance(each, Forward | ForwardBackward) and each.segment in waiting:
                waiting.remove(each.segment)
                yield Gather(each.segment)
            yield each
