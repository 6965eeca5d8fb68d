"""Runs passes of a net: the instructions of one training iteration, or one pass by itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bpt.context import RunContext
from bpt.events.bus import EventBus
from bpt.exchange import Exchange
from bpt.execute import debug_info
from bpt.execute.local import LocalOperator
from bpt.execute.status import Status
from bpt.schedule import instructions as do
from bpt.schedule.synchronous import synchronous


@dataclass(frozen=True)
class Iteration:
    """Executes the instructions of training iterations on one rank.

    Attributes:
        operator: runs the segments.
        exchange: sums gradients over ranks.
        status: sums losses over ranks.
        context: its ``iteration`` is set by the caller; ``micro`` counts the passes.
        events: of this rank.
    """

    operator: LocalOperator
    exchange: Exchange
    status: Status
    context: RunContext
    events: EventBus

    def run(self, iter_size: int, update: Callable[[float], object], debug: bool) -> float:
        """Run the passes of one iteration, whose gradients add up, and then ``update`` with their mean loss.

        Args:
            debug: log every blob and diff, in Caffe's lines; the operator must be cut into one segment a layer.

        Returns:
            The loss of all ranks, as a mean over the ``iter_size`` passes.
        """
        self.context.micro = -1
        last = len(self.operator.segments) - 1
        loss = 0.0
        # To look at gradients, all must be there before sums come in their place.
        for instruction in synchronous(last + 1, iter_size, self.exchange.broadcasts, overlap=not debug):
            with self.events.during(instruction):
                match instruction:
                    case do.Broadcast():
                        self.exchange.broadcast()
                    case do.Forward(segment):
                        self.context.micro += segment == 0
                        _forward(self.operator, segment, True, debug)
                        if segment == last:
                            loss += self.operator.loss().item() / iter_size
                    case do.Backward(segment):
                        _backward(self.operator, segment, debug)
                    case do.Exchange(segment):
                        self.exchange.start(segment)
                    case do.Wait():
                        self.status.start(loss)
                        self.exchange.wait()
                    case do.Update():
                        loss = self.status.loss
                        update(loss)
        return loss

    def gradient_of(self, iteration: int) -> int | None:
        """The iteration whose gradient an update applies; ``None``: there is none yet, and nothing is updated."""
        return iteration

    def look(self, debug: bool) -> float:
        """Run the net forward once, with the weights of the last update; returns this rank's loss. Collective."""
        if self.exchange.broadcasts:
            self.exchange.broadcast()
        return forward_pass(self.operator, debug=debug)


def forward_pass(operator: LocalOperator, *, grad: bool = False, debug: bool = False) -> float:
    """Run the whole net forward and return this rank's loss. ``grad``: a backward pass will follow."""
    for segment in range(len(operator.segments)):
        _forward(operator, segment, grad, debug)
    return operator.loss().item()


def backward_pass(operator: LocalOperator, *, debug: bool = False) -> None:
    """Run the whole net backward, after a forward pass with ``grad``."""
    for segment in reversed(range(len(operator.segments))):
        _backward(operator, segment, debug)


def _forward(operator: LocalOperator, segment: int, grad: bool, debug: bool) -> None:
    operator.forward(segment, grad)
    if debug:
        debug_info.log_forward(operator, segment)


def _backward(operator: LocalOperator, segment: int, debug: bool) -> None:
    operator.backward(segment)
    if debug:
        debug_info.log_backward(operator, segment)
        if segment == 0:
            debug_info.log_totals(operator)
