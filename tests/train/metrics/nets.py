"""Nets that classify, small enough to check by hand: what is fed is what the classifying layer sees."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from bpt.config.proto import bpt_pb2 as pb
from bpt.engine.operator import Operator
from bpt.nn.net import Net
from tests.support.golden_cases import graph_of

# Of these four samples, the first two are right; in the last, the label's score is only as good as another.
SCORES = torch.tensor([[3.0, 1.0, 0.0], [0.0, 2.0, 1.0], [0.0, 2.0, 1.0], [1.0, 1.0, 0.0]])
LABELS = torch.tensor([0.0, 1.0, 2.0, 0.0])
CORRECT = 2

LOSS = 'layer { name: "loss" type: "SoftmaxWithLoss" bottom: "x" bottom: "y" top: "l" %s }\n'
ACCURACY = 'layer { name: "acc" type: "Accuracy" bottom: "x" bottom: "y" top: "a" %s }\n'


def operator_of(layers: str, shape: tuple[int, ...] = (4, 3), labels: tuple[int, ...] = (4,), phase: int = pb.TRAIN,
                force_backward: bool = True) -> Operator:  # fmt: skip
    """A net of ``layers``, which read "x" and "y"."""
    fed = "".join(
        f'layer {{ name: "{name}" type: "Input" top: "{name}" input_param {{ shape {{ '
        + " ".join(f"dim: {axis}" for axis in sizes)
        + " } } }\n"
        for name, sizes in (("x", shape), ("y", labels))
    )
    return Operator(Net(graph_of(f"force_backward: {str(force_backward).lower()}\n{fed}{layers}", phase)))


def run(operator: Operator, scores: Tensor = SCORES, labels: Tensor = LABELS, grad: bool = True) -> None:
    """A pass forward and, with ``grad``, backward."""
    operator.feed(by_edge(operator, {"x": scores, "y": labels}))
    operator.forward(0, grad=grad)
    if grad:
        operator.backward(0)


def by_edge(operator: Operator, tensors: Mapping[str, Tensor]) -> dict[int, Tensor]:
    graph = operator.net.graph
    inputs = {edge.blob: edge.index for edge in graph.edges if graph.nodes[edge.producer].type == "Input"}
    return {inputs[name]: tensor for name, tensor in tensors.items()}
