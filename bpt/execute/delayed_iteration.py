"""Runs training iterations of one stage under ``schedule: DELAYED`` (Hybrid / GABRA, Eq. 1 and 2)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from bpt.execute.delayed import DelayedOperator
from bpt.execute.staged_iteration import StagedIteration
from bpt.schedule import instructions as do
from bpt.schedule.instructions import Instruction
from bpt.schedule.pipeline import Pipeline, delayed


@dataclass
class DelayedIteration(StagedIteration):
    """Executes the instructions of training iterations on one rank of a pipeline whose stages do not go in step.

    Stage i of n applies the gradient of the batch of n - 1 - i iterations ago. What has not come back when a run ends,
    or a snapshot of it is resumed, is lost; a run that goes on begins anew in this.

    The loss of an iteration is known n - 1 iterations later (LateStatus). So that a log shows one batch, the outputs
    that ``operator.values`` has after an iteration are of that batch, too.
    """

    _first: int = field(default=0, init=False)  # the iteration at which this run began
    _next: int = field(default=-1, init=False)  # what comes after the last iteration
    _outputs: deque[dict[int, Tensor]] = field(default_factory=deque, init=False)  # of the last n iterations

    @property
    def delay(self) -> int:
        """Iterations between a batch's forward pass on this stage and its backward pass."""
        return self.operator.links.stages.size - 1 - self.operator.stage

    def gradient_of(self, iteration: int) -> int | None:
        """See Iteration."""
        batch = iteration - self.delay
        return batch if batch >= self._first else None

    def run(self, iter_size: int, update: Callable[[float], object], debug: bool) -> float:
        """Run one iteration of this stage, and then ``update``.

        Returns:
            The loss of all ranks, of as many iterations ago as there are other stages.
        """
        assert iter_size == 1 and not debug
        operator, now = self.operator, self.context.iteration
        assert isinstance(operator, DelayedOperator)
        if now != self._next:
            self._first = now
            operator.forget()
            self.status.forget()
            self._outputs.clear()
        self._next = now + 1
        loss = torch.zeros((), device=operator.device)
        for instruction in self._of(now):
            if isinstance(instruction, do.Wait):
                with self.events.during(instruction):
                    self.exchange.wait()
            elif not isinstance(instruction, do.Update):
                loss = loss + self._execute(instruction)
        operator.expect_diffs(now, self._first)
        operator.finish(self.gradient_of(now))
        operator.values = self._late(operator.values)
        with self.events.during(do.Wait()):
            self.status.start(loss.item())
        with self.events.during(do.Update()):
            update(self.status.loss)
        return self.status.loss

    def _late(self, outputs: dict[int, Tensor]) -> dict[int, Tensor]:
        """The outputs of the iteration whose loss is due; in the first n - 1 iterations, of the first one."""
        self._outputs.append(outputs)
        if len(self._outputs) > self.operator.links.stages.size:
            self._outputs.popleft()
        return self._outputs[0]

    def _of(self, iteration: int) -> Sequence[Instruction]:
        operator = self.operator
        return delayed(Pipeline(operator.stages, operator.transfers), operator.stage, iteration, self._first)
