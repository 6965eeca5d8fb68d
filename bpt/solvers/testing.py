"""Testing a net: the mean of its outputs over a number of batches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from bpt.operators.local import LocalOperator
from bpt.solvers.iteration import forward_pass


@dataclass(frozen=True)
class Scores:
    """Means over the batches of a test: each output blob by name, and the weighted loss."""

    outputs: dict[str, Tensor]
    loss: float


def run_test(
    operator: LocalOperator,
    iterations: int,
    stop: Callable[[], bool] = lambda: False,
    each: Callable[[int, dict[str, Tensor]], None] = lambda batch, outputs: None,
    debug: bool = False,
) -> Scores | None:
    """Run a test net forward ``iterations`` times and average its outputs.

    Args:
        stop: asked before each batch; if it answers True the test ends without a result.
        each: called after each batch with its number and its outputs.
        debug: log every blob, in Caffe's lines; the operator must be cut into one segment a layer.

    Returns:
        The means, or ``None`` if the test was stopped.
    """
    graph = operator.net.graph
    sums: dict[str, Tensor] = {}
    loss = 0.0
    for batch in range(iterations):
        if stop():
            return None
        operator.net.context.micro = batch  # so that DummyData and the like draw anew
        loss += forward_pass(operator, debug=debug)
        outputs = {edge.blob: operator.values[edge.index].float() for edge in graph.outputs}
        each(batch, outputs)
        for blob, value in outputs.items():
            sums[blob] = sums[blob] + value if blob in sums else value.clone()
    return Scores({blob: total / iterations for blob, total in sums.items()}, loss / iterations)
