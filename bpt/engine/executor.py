"""The Executor: one table from instruction to handler executes every schedule."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from bpt.engine import debug_info
from bpt.engine import instructions as do
from bpt.engine.active_batches import Handler
from bpt.engine.batch_counter import BatchCounter
from bpt.engine.compute import Update
from bpt.engine.gradient_exchange import GradientExchange
from bpt.engine.instructions import Instruction, InstructionBase
from bpt.engine.late_loss import LateLoss, Loss
from bpt.engine.operator import Operator
from bpt.engine.scheduler import Scheduler, Synchronous
from bpt.engine.status import Status
from bpt.system.events.bus import EventBus


class Applied(NamedTuple):
    """Gradients that an update applies.

    Attributes:
        batch: the number of the batch that they are of.
        iteration: of the solver in which it began.
        layers: whose they are; ``None``: of all.
        late: the number of updates since the batch began.
    """

    batch: int
    iteration: int
    layers: frozenset[int] | None
    late: int = 0


@dataclass
class IterationState:
    """The state that the handlers of one iteration, or of one pass, share.

    Attributes:
        iteration: of the solver.
        pass_number: the number of the pass under way in its iteration; one less before the first pass.
        loss: the sum of this rank's losses so far: float64, on the device.
        grad: forward passes are followed by backward passes.
        debug: log every blob and diff, in Caffe's lines.
        loss_scale: losses are multiplied by it.
        early: may update parameters in the backward pass that completes their gradients; ``None``: nothing may.
        last_pass: the pass that completes the gradients.
    """

    iteration: int
    pass_number: int
    loss: Tensor
    grad: bool = True
    debug: bool = False
    loss_scale: float = 1.0
    early: Update | None = None
    last_pass: int = 0

    @property
    def early_now(self) -> Update | None:
        """The object that may update parameters in the current pass."""
        return self.early if self.pass_number == self.last_pass else None


class PassExecutor:
    """Executes the instructions of single passes, such as those of a test, on one rank.

    Args:
        operator: runs the segments.
        events: of this rank; by default nobody listens to them.

    Attributes:
        before: called with the iteration and an instruction before it is executed.
    """

    def __init__(self, operator: Operator, events: EventBus | None = None) -> None:
        self.operator = operator
        self.before: Callable[[int, Instruction], object] = lambda iteration, instruction: None
        self._events = events or EventBus()
        self._layers_of = weakref.WeakMethod(operator.layers_of)  # whoever keeps it need not keep the net
        self._now = IterationState(0, -1, self._no_loss())
        self._handlers: dict[type[InstructionBase], Handler] = {
            do.Forward: self._forward,
            do.Backward: self._backward,
            do.BackwardInputs: self._backward,
            do.BackwardWeights: lambda instruction: operator.backward_weights(instruction.segment, instruction.micro),
            **operator.batches.handlers(),
        }

    def evaluate(self, iteration: int, number: int, *, grad: bool = False, debug: bool = False) -> float:
        """Run a pass forward; return this rank's loss.

        Args:
            number: of the pass in its iteration: random numbers are those of it.
            grad: a backward pass will follow.
            debug: log every blob, in Caffe's lines; the operator must be cut into one segment a layer.
        """
        self._begin(IterationState(iteration, number - 1, self._no_loss(), grad, debug))
        batches = self.operator.batches
        batches.begin(iteration, self.operator.micro_batches, number)
        for instruction in self._scheduler().forward():
            self._execute(instruction)
        batches.finish()
        return float(self._now.loss.item())

    def backward(self, debug: bool = False) -> None:
        """Run the whole net backward, after ``evaluate`` with ``grad``."""
        self._now.debug = debug
        for segment in reversed(range(len(self.operator.segments))):
            self._execute(do.Backward(segment))

    def _no_loss(self) -> Tensor:
        return torch.zeros((), dtype=torch.float64, device=self.operator.device)

    def _scheduler(self) -> Scheduler:
        """Return the scheduler of the net as it is cut now."""
        return self._scheduler_of(1, False, False)

    def _scheduler_of(self, passes: int, broadcasts: bool, joined: bool) -> Scheduler:
        operator = self.operator
        if operator.stage is not None:
            return operator.stage.scheduler(passes, operator.micro_batches, broadcasts, operator.gathers)
        # debug_info shows this rank's gradients, which must all be there before sums replace them.
        return Synchronous(len(operator.segments), passes, broadcasts, not self._now.debug, joined)

    def _begin(self, state: IterationState) -> None:
        self._now = state
        if self._events.flight:
            self._events.flight.begin_iteration(state.iteration, self._layers_of)

    def _execute(self, instruction: Instruction) -> None:
        self.before(self._now.iteration, instruction)
        with self._events.during(instruction, self.operator.layers_of):
            self._handlers[type(instruction)](instruction)

    # Handlers

    def _forward(self, instruction: do.Forward) -> None:
        segment, micro, now = instruction.segment, instruction.micro, self._now
        if micro is None:
            self._begin_pass(segment)
        self.operator.forward(segment, micro, grad=now.grad)
        now.loss = now.loss + self.operator.losses(segment, micro)
        if now.debug:
            debug_info.log_forward(self.operator, segment)

    def _begin_pass(self, segment: int) -> None:
        """Begin a pass on the whole share if this is its first segment."""
        if segment == 0:
            now = self._now
            now.pass_number += 1
            self.operator.begin_pass(now.iteration, now.pass_number, now.loss_scale)

    def _backward(self, instruction: do.Backward | do.BackwardInputs) -> None:
        self.operator.backward(instruction.segment, instruction.micro, self._now.early_now)
        if self._now.debug:
            debug_info.log_backward(self.operator, instruction.segment)
            if not instruction.segment:
                debug_info.log_totals(self.operator)


class Executor(PassExecutor):
    """Executes the instructions of training iterations on one rank.

    Args:
        operator: runs the segments.
        exchange: sums gradients over ranks.
        status: sums losses over ranks.
        events: of this rank; by default nobody listens to them.
        passes: of an iteration (iter_size).

    Attributes:
        passes: of the next iteration.
    """

    def __init__(
        self,
        operator: Operator,
        exchange: GradientExchange,
        status: Status,
        events: EventBus | None = None,
        passes: int = 1,
    ) -> None:
        super().__init__(operator, events)
        self._exchange = exchange
        self._status = status
        self.passes = passes
        self._batches = BatchCounter(operator.delay or 0)
        self._exchanging = False
        self._loss: Loss = 0.0
        self._late = False
        self._update: Callable[[Loss], object] = lambda loss: None
        self._handlers |= {
            do.Broadcast: lambda instruction: exchange.broadcast(),
            do.Gather: lambda instruction: exchange.gather(instruction.segment),
            do.ForwardBackward: self._forward_backward,
            do.ExchangeGradients: self._start_exchange,
            do.Wait: self._wait,
            do.UpdateWeights: self._update_weights,
            do.Average: lambda instruction: exchange.average(),
        }

    def train(
        self,
        iteration: int,
        update: Callable[[Loss], object],
        debug: bool = False,
        scale: Callable[[int], float] = lambda batch: 1.0,
        early: Update | None = None,
        late: bool = False,
    ) -> Loss:
        """Run the passes of one iteration, whose gradients add up, and then ``update`` with their mean loss.

        Args:
            iteration: of the solver.
            update: applies the gradients.
            debug: log every blob and diff, in Caffe's lines; the operator must be cut into one segment a layer.
            scale: returns the loss scale of the batch that begins, of this number; its gradients come multiplied by it.
            early: may update parameters before ``update`` is called, in the backward pass that completes their
                gradients, for one segment on one rank, in step; or in the exchange, where it has summed slices.
            late: the loss may be read after the iteration, so that the host need not wait for the device; only on one
                rank.

        Returns:
            The loss of all ranks, as a mean over the passes; under ``schedule: DELAYED`` that of as many iterations ago
            as there are other stages.
        """
        if not self._batches.begin(iteration):
            self.operator.batches.forget()
            self._status.forget()
        batch, early = self._batches.batch, self._exchange.take_early(early)
        loss_scale = scale(batch)
        self._begin(IterationState(iteration, -1, self._no_loss(), True, debug, loss_scale, early, self.passes - 1))
        self._update, self._late = update, late
        scheduler = self._scheduler()
        self.operator.batches.begin(iteration, scheduler.micro_batches, loss_scale=loss_scale)
        for instruction in scheduler.training(batch, self._batches.first):
            self._execute(instruction)
        return self._loss

    def renumber(self, iteration: int) -> None:
        """Let the run that is under way, if one is, continue with the iteration of this number."""
        self._batches.renumber(iteration)

    def forget(self) -> None:
        """Let no iteration continue the run, whatever its number."""
        self._batches.forget()

    def evaluate(self, iteration: int, number: int, *, grad: bool = False, debug: bool = False) -> float:
        if self._exchange.broadcasts:
            self._execute(do.Broadcast())
        return super().evaluate(iteration, number, grad=grad, debug=debug)

    def complete_weights(self) -> None:
        """Wait for the weights of all segments that other ranks have updated, because they will be read."""
        self._exchange.complete_weights()

    def applied(self) -> list[Applied]:
        """Return the gradients that the update at the end of the last iteration applies."""
        batches = self._batches
        found = self._scheduler().applied(batches.batch, batches.first)
        return [
            Applied(batch, batches.iteration_of(batch), self._layers(segments), batches.batch - batch)
            for batch, segments in found
        ]

    def _layers(self, segments: Sequence[int] | None) -> frozenset[int] | None:
        if segments is None:
            return None
        spans = [self.operator.segments[index] for index in segments]
        return frozenset(layer for segment in spans for layer in range(segment.start, segment.end))

    def _scheduler(self) -> Scheduler:
        # Whoever looks at blobs, or times phases, does so between forward and backward.
        joined = not (self._now.debug or self._events.listens) and self.operator.can_join
        return self._exchange.schedule(self._scheduler_of(self.passes, self._exchange.broadcasts, joined))

    # Handlers

    def _forward_backward(self, instruction: do.ForwardBackward) -> None:
        self._begin_pass(instruction.segment)
        self.operator.forward_backward(instruction.segment, self._now.early_now)
        self._now.loss = self._now.loss + self.operator.losses(instruction.segment)

    def _start_exchange(self, instruction: do.ExchangeGradients) -> None:
        self._exchanging = True
        self._exchange.start(instruction.segment)

    def _wait(self, instruction: do.Wait) -> None:
        if self._late:
            self._loss = LateLoss(self._now.loss, self.passes)
        else:
            self._status.start(self._now.loss.item() / self.passes)
        if instruction.in_step:
            self.operator.batches.finish()
        if self._exchanging:
            self._exchange.wait()
            self._exchanging = False

    def _update_weights(self, instruction: do.UpdateWeights) -> None:
        if not self._late:
            self._loss = self._status.loss
        self._update(self._loss)
        self._exchange.updated()
