"""Executes the instructions of one training iteration."""

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
                operator.forward(segment)
                if debug:
                    debug_info.log_forward(operator, segment)
                if segment == last:
                    loss += operator.loss().item() / iter_size
            case Backward(segment):
                operator.backward(segment)
                if debug:
                    debug_info.log_backward(operator, segment)
                    if segment == 0:
                        debug_info.log_totals(operator)
            case Update():
                update(loss)
    return loss
