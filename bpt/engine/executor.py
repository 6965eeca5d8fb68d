"""The Executor: where Scheduler and Operator meet. One table from instruction to handler executes every schedule."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from bpt.engine import debug_info
from bpt.engine import instructions as do
from bpt.engine.compute import Update
from bpt.engine.gradient_exchange import GradientExchange
from bpt.engine.instructions import Instruction
from bpt.engine.operator import Operator
from bpt.engine.scheduler import Scheduler, Synchronous
from bpt.engine.status import Status
from bpt.system.events.bus import EventBus

Handler = Callable[[Any], None]


class Applied(NamedTuple):
    """Gradients that an update applies.

    Attributes:
        batch: the number of the batch that they are of.
        iteration: of the solver in which it began.
        layers: whose they are; ``None``: of all.
    """

    batch: int
    iteration: int
    layers: frozenset[int] | None


class Executor:
    """Executes the instructions of training iterations, and of passes that are only looked at, on one rank.

    Args:
        operator: runs the segments.
        exchange: sums gradients over ranks.
        status: sums losses over ranks.
        events: of this rank; by default of nobody's interest.
        passes: of an iteration (iter_size).

    An executor that only evaluates needs no ``exchange`` and no ``status``.

    Attributes:
        before: called with the iteration and an instruction before it is executed.
    """

    def __init__(
        self,
        operator: Operator,
        exchange: GradientExchange | None = None,
        status: Status | None = None,
        events: EventBus | None = None,
        passes: int = 1,
    ) -> None:
        self.operator = operator
        self.exchange = exchange
        self._status = status
        self._events = events or EventBus()
        self._passes = passes
        self._loss = torch.zeros((), dtype=torch.float64, device=operator.device)
        self._layers_of = weakref.WeakMethod(operator.layers_of)  # who keeps it need not keep the net
        self._total = 0.0
        self._iteration = 0
        self._pass = -1
        self._grad = True
        self._debug = False
        self._update: Callable[[float], object] = lambda loss: None
        self._early: Update | None = None
        # Batches are counted from the iteration on at which the run began; iterations may be renumbered meanwhile.
        self._batch = self._first = 0
        self._next: int | None = None  # the iteration that goes on with the run
        self._iterations: dict[int, int] = {}  # of batches whose gradients may be to come
        self._exchanging = False
        self.before: Callable[[int, Instruction], object] = lambda iteration, instruction: None
        self._handlers: Mapping[type[Instruction], Handler] = {
            do.Broadcast: self._broadcast,
            do.LoadBatch: self._draw,
            do.Forward: self._forward,
            do.Backward: self._backward,
            do.ForwardBackward: self._both,
            do.Send: self._send,
            do.Recv: self._recv,
            do.PostRecv: self._expect,
            do.ReleaseBatch: self._retire,
            do.ExchangeGradients: self._start_exchange,
            do.Wait: self._wait,
            do.UpdateWeights: self._apply,
            do.Average: self._average,
        }

    @property
    def scheduler(self) -> Scheduler:
        """Of the net as it is cut now."""
        found = self._in_step
        return self.exchange.schedule(found) if self.exchange else found

    @property
    def _in_step(self) -> Scheduler:
        """Of replicas that do not average weights."""
        operator, broadcasts = self.operator, self.exchange is not None and self.exchange.broadcasts
        stage = operator.stage
        if stage is None:
            # To look at gradients, all must be there before sums come in their place. And who looks at blobs or times
            # phases looks between forward and backward.
            joined = operator.joins and not self._debug and not self._events.listens
            return Synchronous(len(operator.segments), self._passes, broadcasts, not self._debug, joined)
        return stage.scheduler(self._passes, operator.micro_batches, broadcasts, operator.gathers)

    def train(
        self,
        iteration: int,
        update: Callable[[float], object],
        debug: bool = False,
        scale: Callable[[int], float] = lambda batch: 1.0,
        early: Update | None = None,
    ) -> float:
        """Run the passes of one iteration, whose gradients add up, and then ``update`` with their mean loss.

        Args:
            debug: log every blob and diff, in Caffe's lines; the operator must be cut into one segment a layer.
            scale: the loss scale of the batch that begins, of this number; its gradients come multiplied by it.
            early: may update parameters before ``update`` is called, in the backward pass that completes their
                gradients; only for one segment on one rank, in step.

        Returns:
            The loss of all ranks, as a mean over the passes; under ``schedule: DELAYED`` that of as many iterations ago
            as there are other stages.
        """
        assert self._status is not None
        self._begin(iteration, -1, grad=True, debug=debug)
        self._update = update
        self._early = early
        if iteration != self._next:  # elsewhere: batches that are under way will not come back
            self._batch = self._first = iteration
            self._iterations.clear()
            self.operator.forget()
            self._status.forget()
        else:
            self._batch += 1
        self._next = iteration + 1
        self._iterations[self._batch] = iteration
        self._iterations.pop(self._batch - 1 - (self.operator.delay or 0), None)
        scheduler = self.scheduler
        self.operator.begin(iteration, scheduler.micro_batches, loss_scale=scale(self._batch))
        for instruction in scheduler.training(self._batch, self._first):
            self._execute(instruction)
        return self._total

    def renumber(self, iteration: int) -> None:
        """The run that is under way, if one is, goes on with the iteration of this number."""
        if self._next is not None:
            self._next = iteration

    def forget(self) -> None:
        """What comes next does not go on with what was before, whatever its number."""
        self._next = None

    def evaluate(self, iteration: int, number: int, *, grad: bool = False, debug: bool = False) -> float:
        """Run a pass forward; returns this rank's loss.

        Args:
            number: of the pass in its iteration: random numbers are those of it.
            grad: a backward pass will follow.
        """
        if self.exchange is not None and self.exchange.broadcasts:
            self._execute(do.Broadcast())
        self._begin(iteration, number - 1, grad, debug)
        scheduler = self.scheduler
        self.operator.begin(iteration, self.operator.micro_batches, number)
        for instruction in scheduler.forward():
            self._execute(instruction)
        self.operator.finish()
        return float(self._loss.item())

    def backward(self, debug: bool = False) -> None:
        """Run the whole net backward, after ``evaluate`` with ``grad``."""
        self._debug, self._early = debug, None
        for segment in reversed(range(len(self.operator.segments))):
            self._execute(do.Backward(segment))

    def applied(self) -> list[Applied]:
        """Return the gradients that the update at the end of the last iteration applies."""
        found = self.scheduler.applied(self._batch, self._first)
        return [Applied(batch, self._iterations[batch], self._layers(segments)) for batch, segments in found]

    def _layers(self, segments: Sequence[int] | None) -> frozenset[int] | None:
        if segments is None:
            return None
        spans = [self.operator.segments[index] for index in segments]
        return frozenset(layer for segment in spans for layer in range(segment.start, segment.end))

    def _begin(self, iteration: int, number: int, grad: bool, debug: bool) -> None:
        self._iteration, self._pass, self._grad, self._debug = iteration, number, grad, debug
        self._loss = torch.zeros((), dtype=torch.float64, device=self.operator.device)
        if self._events.flight:
            self._events.flight.begin_iteration(iteration, self._layers_of)

    def _execute(self, instruction: Instruction) -> None:
        self.before(self._iteration, instruction)
        with self._events.during(instruction, self.operator.layers_of):
            self._handlers[type(instruction)](instruction)

    # Handlers

    def _broadcast(self, instruction: do.Broadcast) -> None:
        assert self.exchange is not None
        self.exchange.broadcast()

    def _draw(self, instruction: do.LoadBatch) -> None:
        self.operator.draw(instruction.micro)

    def _forward(self, instruction: do.Forward) -> None:
        segment, micro = instruction.segment, instruction.micro
        if micro is None:
            self._enter(segment)
        self.operator.forward(segment, micro, grad=self._grad)
        self._loss = self._loss + self.operator.losses(segment, micro)
        if self._debug:
            debug_info.log_forward(self.operator, segment)

    def _enter(self, segment: int) -> None:
        """A pass begins with its first segment."""
        if segment == 0:
            self._pass += 1
            self.operator.begin_pass(self._iteration, self._pass)

    @property
    def _early_now(self) -> Update | None:
        """What may update parameters in this pass: only the last one completes gradients."""
        return self._early if self._pass == self._passes - 1 else None

    def _both(self, instruction: do.ForwardBackward) -> None:
        self._enter(instruction.segment)
        self.operator.both(instruction.segment, self._early_now)
        self._loss = self._loss + self.operator.losses(instruction.segment)

    def _backward(self, instruction: do.Backward) -> None:
        self.operator.backward(instruction.segment, instruction.micro, self._early_now)
        if self._debug:
            debug_info.log_backward(self.operator, instruction.segment)
            if not instruction.segment:
                debug_info.log_totals(self.operator)

    def _send(self, instruction: do.Send) -> None:
        self.operator.send(instruction)

    def _recv(self, instruction: do.Recv) -> None:
        self.operator.recv(instruction)

    def _expect(self, instruction: do.PostRecv) -> None:
        self.operator.expect(instruction)

    def _retire(self, instruction: do.ReleaseBatch) -> None:
        self.operator.retire(instruction.batch)

    def _start_exchange(self, instruction: do.ExchangeGradients) -> None:
        assert self.exchange is not None
        self._exchanging = True
        self.exchange.start(instruction.segment)

    def _wait(self, instruction: do.Wait) -> None:
        assert self.exchange is not None and self._status is not None
        self._status.start(self._loss.item() / self._passes)
        if instruction.in_step:
            self.operator.finish()
        if self._exchanging:
            self.exchange.wait()
            self._exchanging = False

    def _apply(self, instruction: do.UpdateWeights) -> None:
        assert self._status is not None
        self._total = self._status.loss
        self._update(self._total)

    def _average(self, instruction: do.Average) -> None:
        assert self.exchange is not None
        self.exchange.average()
