"""A second forward pass is the first one again: dropout, BatchNorm, and states from pass to pass."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from bpt.engine.compute import LibraryCompute, TwoPartCompute
from bpt.engine.operator import Operator
from bpt.nn.net import Net
from bpt.nn.pass_context import PassContext
from tests.support.cut_nets import layer
from tests.support.golden_cases import graph_of
from tests.support.sharded_operators import SEED, conv, fc

IMAGES = "\n".join(
    [
        """layer { name: "in" type: "DummyData" top: "x" top: "y"
           dummy_data_param { shape { dim: 4 dim: 2 dim: 6 dim: 6 } shape { dim: 4 }
             data_filler { type: "gaussian" } data_filler { type: "constant" value: 1 } } }""",
        conv("c", "x"),
        layer("BatchNorm", "c", "c"),
        layer("ReLU", "c", "c"),
        layer("Dropout", "c", "d"),
        fc("a", "d", 3),
        layer("SoftmaxWithLoss", "a y", "l"),
    ]
)
STEPS = "\n".join(
    [
        """layer { name: "in" type: "DummyData" top: "x" top: "k" top: "y"
           dummy_data_param { shape { dim: 3 dim: 2 dim: 5 } shape { dim: 3 dim: 2 } shape { dim: 3 dim: 2 dim: 4 }
             data_filler { type: "gaussian" } data_filler { type: "constant" value: 1 }
             data_filler { type: "gaussian" } } }""",
        layer("LSTM", "x k", "h", 'recurrent_param { num_output: 4 weight_filler { type: "gaussian" std: 0.3 } }'),
        layer("EuclideanLoss", "h y", "l"),
    ]
)


def trained(text: str, recomputes: bool, compute: type[LibraryCompute]) -> list[list[Tensor]]:
    """What some passes leave: after each the loss, gradients, all blobs of layers, and hidden states."""
    graph = graph_of(text)
    recomputed = frozenset(range(len(graph)) if recomputes else ())
    operator = Operator(Net(graph, PassContext(SEED)), compute=compute, recomputed=recomputed)
    net, found = operator.net, []
    for number in range(3):
        operator.begin_pass(0, number)
        operator.forward(0)
        assert not recomputes or not operator.batches.outcome.segments[0].tops
        loss = operator.loss()
        operator.backward(0)
        operator.backward_weights(0)
        gradients = [value.grad.clone() for value in net.parameters() if value.grad is not None]
        hidden = [state for states in net.hidden_states for state in states]
        found.append([loss, *gradients, *(value.detach().clone() for value in net.parameters()), *hidden])
    return found


@pytest.mark.parametrize("compute", [LibraryCompute, TwoPartCompute])
@pytest.mark.parametrize("text", [IMAGES, STEPS])
def test_passes_are_equal(text: str, compute: type[LibraryCompute]) -> None:
    for own, expected in zip(trained(text, True, compute), trained(text, False, LibraryCompute), strict=True):
        assert all(map(torch.equal, own, expected)) and len(own) == len(expected)
