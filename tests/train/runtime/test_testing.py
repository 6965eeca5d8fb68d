"""The mean of a test net's outputs over its batches, against means worked by hand."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from bpt.engine.operator import Operator
from bpt.graph.segments import per_layer, whole
from bpt.nn.net import Net
from bpt.train.runtime.testing import ScoresOfTest, run_test
from tests.support.golden_cases import graph_of

# y = 2 x in shape (2,); the loss is 0.5 · Σ y, a shared number that is an output, too.
NET = """
layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 2 } } }
layer { name: "double" type: "Power" bottom: "x" top: "y" power_param { scale: 2 } loss_weight: 0.5 }
"""
BATCHES = ([1.0, 2.0], [3.0, 6.0], [5.0, 4.0])


def operator_of(cut: bool = False) -> Operator:
    net = Net(graph_of(NET, phase=1))
    return Operator(net, per_layer(net.graph) if cut else whole(net.graph))


def fed(operator: Operator) -> Operator:
    """Every forward pass gets the next of ``BATCHES``."""
    batches = iter(BATCHES)
    forward = operator.forward

    def feed_and_forward(index: int, micro: int | None = None, *, grad: bool = True) -> None:
        assert not grad
        if index == 0:
            operator.feed({0: torch.tensor(next(batches))})
        forward(index, micro, grad=grad)

    operator.forward = feed_and_forward  # type: ignore[method-assign]
    return operator


@pytest.mark.parametrize("cut", [False, True])
def test_means_over_the_batches(cut: bool) -> None:
    scores = run_test(fed(operator_of(cut)), 3)
    assert scores is not None
    # 2 · (1 + 3 + 5) / 3 and 2 · (2 + 6 + 4) / 3; 0.5 · (6 + 8) is the mean of the losses 3, 9 and 9.
    assert {blob: value.tolist() for blob, value in scores.outputs.items()} == {"y": [6.0, 8.0]}
    assert scores.loss == 7.0


def test_each_batch_is_shown_with_its_own_outputs() -> None:
    seen: list[tuple[int, dict[str, list[float]]]] = []

    def each(batch: int, outputs: dict[str, Tensor]) -> None:
        seen.append((batch, {blob: value.tolist() for blob, value in outputs.items()}))

    run_test(fed(operator_of()), 3, each=each)
    assert seen == [(0, {"y": [2.0, 4.0]}), (1, {"y": [6.0, 12.0]}), (2, {"y": [10.0, 8.0]})]


@pytest.mark.parametrize("after", [0, 1, 2])
def test_stopping_gives_no_scores(after: int) -> None:
    answers = iter([False] * after + [True])
    batches: list[int] = []
    scores = run_test(fed(operator_of()), 3, lambda: next(answers), lambda batch, outputs: batches.append(batch))
    assert scores is None
    assert batches == list(range(after))


def test_a_net_without_outputs() -> None:
    net = Net(graph_of('layer { name: "d" type: "DummyData" top: "x" dummy_data_param { shape { dim: 2 } } }'
                       'layer { name: "s" type: "Silence" bottom: "x" }', phase=1))  # fmt: skip
    assert run_test(Operator(net), 2) == ScoresOfTest({}, 0.0)
