"""Testing a net: the mean of its outputs over a number of batches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from bpt.execute.iteration import forward_pass
from bpt.execute.local import LocalOperator
from bpt.runtime.outputs import Outputs


@dataclass(frozen=True)
class Scores:
    """Means over the batches of a test: each output blob by name, and the weighted loss."""

    outputs: dict[str, Tensor]
    loss: float


def run_test(
    operator: LocalOperator,
    iterations: int,
    stop: Callable[[], bool] = lambda: False,
    each: Callable[[int, dict[str, Tensor]], None] | None = None,
    debug: bool = False,
    outputs: Outputs | None = None,
) -> Scores | None:
    """Run a test net forward ``iterations`` times and average its outputs.

    Args:
        stop: asked before each batch; if it answers True the test ends without a result.
        each: called after each batch with its number and its outputs.
        debug: log every blob, in Caffe's lines; the operator must be cut into one segment a layer.
        outputs: puts the outputs of many ranks together; by default this one is alone.

    Returns:
        The means, or ``None`` if the test was stopped.
    """
    outputs = outputs or Outputs(operator.net)
    sums: dict[int, Tensor] = {}
    loss = 0.0
    for batch in range(iterations):
        if stop():
            return None
        operator.net.context.micro = batch  # so that DummyData and the like draw anew
        loss += forward_pass(operator, debug=debug)
        values = {edge.index: operator.values[edge.index].float() for edge in outputs.edges}
        if each:
            each(batch, outputs.whole(values))
        for edge, value in values.items():
            sums[edge] = sums[edge] + value if edge in sums else value.clone()
    means = {blob: total / iterations for blob, total in outputs.whole(sums).items()}
    return Scores(means, outputs.total(loss) / iterations)
