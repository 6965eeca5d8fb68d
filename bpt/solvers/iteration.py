"""Runs passes of a net: the instructions of one training iteration, or one pass by itself."""

from __future__ import annotations

from collections.abc import Callable

from bpt.context import RunContext
from bpt.operators.local import LocalOperator
from bpt.schedule.instructions import Backward, Forward, Update
from bpt.schedule.sequential import sequential
from bpt.solvers import debug_info


def run_iteration(
    operator: LocalOperator, context: RunContext, iter_size: int, update: Callable[[float], object], debug: bool
) -> float:
    """Run the passes of one iteration, whose gradients add up, and then ``update`` with their mean loss.

    Args:
        context: its ``iteration`` is set; ``micro`` counts the passes.
        debug: log every blob and diff, in Caffe's lines; the operator must be cut into one segment a layer.

    Returns:
        The loss, as a mean over the ``iter_size`` passes.
    """
    context.micro = -1
    last = len(operator.segments) - 1
    loss = 0.0
    for instruction in sequential(len(operator.segments), iter_size):
        match instruction:
            case Forward(segment):
                context.micro += segment == 0
                _forward(operator, segment, True, debug)
                if segment == last:
                    loss += operator.loss().item() / iter_size
            case Backward(segment):
                _backward(operator, segment, debug)
            case Update():
                update(loss)
    return loss


def forward_pass(operator: LocalOperator, *, grad: bool = False, debug: bool = False) -> float:
    """Run the whole net forward and return its loss. ``grad``: a backward pass will follow."""
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
