"""The inner layer on a rank among others: what talks to them runs in the calling thread, in the net's order."""

from __future__ import annotations

import threading

import torch
from torch import Tensor

from bpt.engine.operator import Operator
from bpt.graph.share import Share
from bpt.nn.net import Net
from bpt.nn.pass_context import PassContext
from bpt.parallel.task_dag import TaskDagCompute
from tests.support.task_dag_nets import LOSS, assert_same, convolution, dag_operator, fully_connected, image_net, layer

SYNC = "batch_norm_param { sync: true }"
TEXT = (
    convolution("stem", "x", "num_output: 4 kernel_size: 3 bias_term: false")
    + layer("BatchNorm", "stem", "left", SYNC)
    + layer("BatchNorm", "stem", "right", f"{SYNC}")
    + layer("Eltwise", "left right", "sum", "eltwise_param { coeff: 1 coeff: 3 }")
    + layer("Dropout", "sum", "sum")
    + fully_connected("score", "sum", 5)
    + LOSS
)


def test_collective_calls_have_one_order() -> None:
    """This rank has the last 4 of 10 samples; the other one's sums are 0, but it is counted among the ranks."""
    graph = image_net(TEXT, 10)
    results = []
    for kind in (Operator, dag_operator):
        calls: list[tuple[str, list[int]]] = []

        def total(tensor: Tensor, layer: str, calls: list[tuple[str, list[int]]] = calls) -> Tensor:
            calls.append((threading.current_thread().name, list(tensor.shape)))
            return tensor

        context = PassContext(seed=1, ranks=2, split=share_of, total=total)
        operator = kind(Net(graph, context))
        results.append((pass_over_share(operator), calls))
        if isinstance(operator.compute, TaskDagCompute):
            assert operator.compute.timelines
    (expected, theirs), (actual, ours) = results
    assert len(ours) == 4
    assert ours == theirs
    assert {name for name, _ in ours} == {threading.current_thread().name}
    assert_same(actual, expected, 1e-12)


def share_of(samples: int) -> Share:
    assert samples == 10
    return Share(6, 4, 10)


def pass_over_share(operator: Operator) -> dict[str, Tensor]:
    net = operator.net.double()
    generator = torch.Generator().manual_seed(3)
    operator.feed({0: torch.randn(4, 3, 9, 8, generator=generator, dtype=torch.float64), 1: torch.arange(4.0)})
    operator.forward(0)
    operator.backward(0)
    return {"loss": operator.loss(), **{n: p.grad for n, p in net.named_parameters() if p.grad is not None}}
