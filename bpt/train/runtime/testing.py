"""Tests a net: computes the mean of its outputs over a number of batches, or the precision of its detections."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from bpt.data.detection.average_precision import Precisions, precisions_of
from bpt.engine.executor import PassExecutor
from bpt.engine.operator import Operator
from bpt.nn.layers.base import batch_of
from bpt.nn.net_graph import is_evaluated, is_listed
from bpt.train.runtime.outputs import Outputs


@dataclass(frozen=True)
class ScoresOfTest:
    """The means over the batches of a test: each output blob by name, and the weighted loss.

    For a DetectionEvaluate layer's blob, these are the mean average precision over all batches, and the average
    precisions by label. Other blobs with lists are left out.
    """

    outputs: dict[str, Tensor]
    loss: float
    precisions: dict[str, Precisions] = field(default_factory=dict)


def run_test(
    operator: Operator,
    iterations: int,
    stop: Callable[[], bool] = lambda: False,
    each: Callable[[int, dict[str, Tensor]], None] | None = None,
    debug: bool = False,
    outputs: Outputs | None = None,
    iteration: int = 0,
    ap_version: str = "Integral",
) -> ScoresOfTest | None:
    """Run a test net forward ``iterations`` times and average its outputs.

    Args:
        stop: function to call before each batch; if it returns True, the test ends without a result.
        each: function to call after each batch with its number and its outputs.
        debug: whether to log every blob, in Caffe's lines; the operator must have one segment for each layer.
        iteration: the solver's iteration.
        ap_version: the definition of average precision; one of ``AP_VERSIONS``.
        outputs: assembles the outputs of several ranks; by default this rank is alone.

    Returns:
        The means, or ``None`` if the test was stopped.
    """
    outputs = outputs or Outputs(operator.net)
    executor = PassExecutor(operator)
    graph = operator.net.graph
    listed = {edge.index for edge in outputs.edges if is_listed(graph, edge)}
    judged = [edge.index for edge in outputs.edges if is_evaluated(graph, edge)]
    rows: dict[int, list[Tensor]] = {edge: [] for edge in judged}
    sums: dict[int, Tensor] = {}
    loss = 0.0
    with operator.net.fixed_parameters():
        for batch in range(iterations):
            if stop():
                return None
            # Each batch has its own pass number, so that DummyData and the like draw new numbers.
            loss += executor.evaluate(iteration, batch, debug=debug)
            values = {e.index: operator.values[e.index].float() for e in outputs.edges if e.index not in listed}
            for edge in judged:
                rows[edge].append(_of_whole_test(operator, operator.values[edge].float().cpu(), batch))
            if each:
                each(batch, outputs.whole(values))
            for edge, value in values.items():
                sums[edge] = sums[edge] + value if edge in sums else value.clone()
    means = {blob: total / iterations for blob, total in outputs.whole(sums).items()}
    whole = outputs.listed({edge: torch.cat(parts, 2) for edge, parts in rows.items()})
    precisions = {blob: precisions_of(parts, ap_version) for blob, parts in whole.items()}
    means |= {blob: torch.tensor(found.mean) for blob, found in precisions.items()}
    return ScoresOfTest(means, outputs.total(loss) / iterations, precisions)


def _of_whole_test(operator: Operator, rows: Tensor, batch: int) -> Tensor:
    """Return rows (1, 1, number, …) with sample numbers that are unique over all batches and ranks."""
    share = operator.net.context.split(batch_of(operator.net.graph))
    first = batch * share.total + share.start
    numbers = torch.where(rows[..., :1] >= 0, rows[..., :1] + first, rows[..., :1])
    return torch.cat((numbers, rows[..., 1:]), 3)
