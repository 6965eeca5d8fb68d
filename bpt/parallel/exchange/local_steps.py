"""Local steps: when replicas of ``exchange: LOCAL`` train alone, and when they average. Arithmetic only.

Before iteration ``start`` gradients are summed in each iteration (post-local SGD, Lin et al. 2020). From there on
weights are averaged after each ``steps`` updates (Local SGD, Stich 2019)::

    start 2, steps 3    F0 B0 X0 W U · F0 B0 X0 W U | F0 B0 X0 W U · F0 B0 X0 W U · F0 B0 X0 W U A | …

It depends on the iteration's number only, so a continued run averages when the undisturbed one does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bpt.engine.instructions import Average, Instruction
from bpt.engine.scheduler import AppliedBatch, Scheduler


@dataclass(frozen=True)
class LocalSteps:
    """The numbers of ``local_param``.

    Attributes:
        steps: H, 1 or more.
        start: the first iteration in which gradients are not summed.
    """

    steps: int
    start: int = 0

    def is_local(self, iteration: int) -> bool:
        """Return whether replicas update by their own gradients in this iteration."""
        return iteration >= self.start

    def averages(self, done: int) -> bool:
        """Return whether weights are averaged when so many iterations are done."""
        return done > self.start and (done - self.start) % self.steps == 0

    def replicas_diverged(self, done: int) -> bool:
        """Return whether replicas have different weights after so many iterations."""
        return done > self.start and not self.averages(done)


@dataclass(frozen=True)
class LocalUpdates:
    """A scheduler whose iterations end with Average where that is due.

    Attributes:
        within: of the iterations; see Scheduler.
    """

    within: Scheduler
    local: LocalSteps

    @property
    def micro_batches(self) -> int:
        """The number of micro-batches of an iteration; 0 if batches are not divided."""
        return self.within.micro_batches

    def training(self, iteration: int, first: int) -> Iterator[Instruction]:
        """Return the instructions of a training iteration, with Average at its end where that is due."""
        yield from self.within.training(iteration, first)
        if self.local.averages(iteration + 1):
            yield Average()

    def forward(self) -> Iterator[Instruction]:
        """Return the instructions of a pass without a backward pass."""
        yield from self.within.forward()

    def applied(self, iteration: int, first: int) -> Sequence[AppliedBatch]:
        """Return the gradients that the update at the end of ``iteration`` applies."""
        return self.within.applied(iteration, first)
