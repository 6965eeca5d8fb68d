"""Testing a net: the mean of its outputs over a number of batches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from bpt.execute.executor import Executor
from bpt.execute.operator import SegmentOperator
from bpt.runtime.outputs import Outputs


@dataclass(frozen=True)
class Scores:
    """Means over the batches of a test: each output blob by name, and the weighted loss."""

    outputs: dict[str, Tensor]
    loss: float


def run_test(
    operator: SegmentOperator,
    iterations: int,
    stop: Callable[[], bool] = lambda: False,
    each: Callable[[int, dict[str, Tensor]], None] | None = None,
    debug: bool = False,
    outputs: Outputs | None = None,
    iteration: int = 0,
) -> Scores | None:
    """Run a test net forward ``iterations`` times and average its outputs.

    Args:
        stop: asked before each batch; if it answers True the test ends without a result.
        each: called after each batch with its number and its outputs.
        debug: log every blob, in Caffe's lines; the operator must be cut into one segment a layer.
        iteration: of the solver.
        outputs: puts the outputs of many ranks together; by default this one is alone.

    Returns:
        The means, or ``None`` if the test was stopped.
    """
    outputs = outputs or Outputs(operator.net)
    executor = Executor(operator)
    sums: dict[int, Tensor] = {}
    loss = 0.0
    with operator.net.fixed_parameters():
        for batch in range(iterations):
            if stop():
                return None
            # By a number of its own, so that DummyData and the like draw anew.
            loss += executor.evaluate(iteration, batch, debug=debug)
            values = {edge.index: operator.values[edge.index].float() for edge in outputs.edges}
            if each:
                each(batch, outputs.whole(values))
            for edge, value in values.items():
                sums[edge] = sums[edge] + value if edge in sums else value.clone()
    means = {blob: total / iterations for blob, total in outputs.whole(sums).items()}
    return Scores(means, outputs.total(loss) / iterations)
