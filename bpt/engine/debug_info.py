"""``debug_info``: the mean size of every blob, parameter and diff, in the lines of Caffe's Net.

The operator must be cut into one segment a layer.
"""

from __future__ import annotations

import logging

from torch import Tensor

from bpt.base.log import number
from bpt.engine.operator import Operator

LOG = logging.getLogger("bpt")


def _mean_size(tensor: Tensor, scale: float = 1.0) -> str:
    """Return the mean absolute value divided by ``scale``, as Caffe's ``asum_data() / count()``."""
    return number(tensor.detach().float().abs().mean().item() / scale) if tensor.numel() else "0"


def log_forward(operator: Operator, index: int) -> None:
    """Log the data of a layer's tops and parameters, after ``Forward(index)``."""
    graph = operator.net.graph
    node = graph.nodes[index]
    for edge in node.tops:
        size = _mean_size(operator.values[edge])
        LOG.info("    [Forward] Layer %s, top blob %s data: %s", node.name, graph.edges[edge].blob, size)
    for param in (graph.params[i] for i in node.params):
        size = _mean_size(operator.net.value(param))
        LOG.info("    [Forward] Layer %s, param blob %s data: %s", node.name, param.name or param.blob, size)


def log_backward(operator: Operator, index: int) -> None:
    """Log the diffs of a layer's bottoms and parameters, after ``Backward(index)``."""
    graph = operator.net.graph
    node = graph.nodes[index]
    if not node.needs_backward:
        return
    scale = operator.net.context.loss_scale
    for edge, wanted in zip(node.bottoms, node.bottom_needs_diff, strict=True):
        if wanted and edge in operator.diffs:
            size = _mean_size(operator.diffs[edge], scale)
            LOG.info("    [Backward] Layer %s, bottom blob %s diff: %s", node.name, graph.edges[edge].blob, size)
    for param in (graph.params[i] for i in node.params):
        grad = operator.net.value(param).grad
        if grad is not None:
            size = _mean_size(grad, scale)
            LOG.info("    [Backward] Layer %s, param blob %s diff: %s", node.name, param.blob, size)


def log_totals(operator: Operator) -> None:
    """Log the norms of all parameters and of their diffs, after the whole backward pass."""
    net = operator.net
    values, scale = [net.value(param) for param in net.graph.learnable], net.context.loss_scale
    l1 = [sum(v.detach().abs().sum().item() for v in values)]
    l1.append(sum(v.grad.abs().sum().item() for v in values if v.grad is not None) / scale)
    squares = [sum(v.detach().square().sum().item() for v in values)]
    squares.append(sum((v.grad / scale).square().sum().item() for v in values if v.grad is not None))
    LOG.error(
        "    [Backward] All net params (data, diff): L1 norm = (%s, %s); L2 norm = (%s, %s)",
        *map(number, l1),
        *(number(square**0.5) for square in squares),
    )
