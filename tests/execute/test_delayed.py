"""DelayedOperator: a batch is differentiated by the weights of its forward pass, whatever has come since."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from bpt.comm.base import Communicator
from bpt.context import RunContext
from bpt.execute.delayed import DelayedOperator
from bpt.execute.local import LocalOperator
from bpt.execute.stage_links import Links
from bpt.graph.segments import cut
from bpt.graph.stages import part_of
from bpt.net import Net
from tests.doubles.thread_ranks import run_ranks
from tests.execute.sharded import fc, layer
from tests.execute.stages import SEED, grads_of
from tests.golden_cases import graph_of

# The two layers on stage 0 have one weight; another one is not trained.
TIED = 'param { name: "w" } param { name: "v" }'
TEXT = "\n".join(
    [
        """layer { name: "in" type: "DummyData" top: "x" top: "y" dummy_data_param {
             shape { dim: 4 dim: 3 } shape { dim: 4 } data_filler { type: "gaussian" }
             data_filler { type: "constant" value: 1 } } }""",
        fc("a", "x", 3, TIED),
        layer("TanH", "a", "t"),
        fc("b", "t", 3, TIED),
        fc("f", "b", 3, "param { lr_mult: 0 } param { lr_mult: 0 }"),
        fc("c", "f", 3),
        layer("SoftmaxWithLoss", "c y", "l"),
    ]
)
STAGES = [0, 0, 0, 0, 0, 1, 1]
GRAPH = graph_of(TEXT)
Operators = tuple[DelayedOperator, Links]


def run(function: Callable[[DelayedOperator], object]) -> None:
    """On two stages, each cut into two segments."""

    def stage(comm: Communicator) -> None:
        net = Net(GRAPH, RunContext(SEED), part=part_of(GRAPH, STAGES, comm.rank))
        links = Links(comm)
        segments = cut(GRAPH, [0, 3, 5, 6], sources_apart=True)
        operator = DelayedOperator(net, segments, links=links, stages=STAGES, delay=1 - comm.rank)
        function(operator)
        links.wait()
        links.close()

    run_ranks(2, stage, timeout=20)


def change(net: Net, step: int) -> None:
    """A made-up update of what is trained."""
    with torch.no_grad():
        for value in net.parameters():
            if value.requires_grad:
                value.mul_(1 + 0.5 * step).add_(0.1)
                value.grad = None


def alone(batch: int) -> dict[int, Tensor]:
    """Gradients of a batch by the weights of its iteration, in one process."""
    net = Net(GRAPH, RunContext(SEED, iteration=batch))
    for step in range(batch):
        change(net, step)
    operator = LocalOperator(net)
    operator.forward(0)
    operator.backward(0)
    return grads_of(net)


def forward(operator: DelayedOperator, batch: int) -> None:
    operator.net.context.iteration = batch
    if operator.stage == 0:
        operator.draw(batch)
        operator.send(0, batch, False)
        operator.forward_part(0, batch)
        operator.forward_part(1, batch)
        operator.send(1, batch, False)
    else:
        operator.recv(1, batch, False)
        operator.forward_part(2, batch)
        operator.recv(0, batch, False)
        operator.forward_part(3, batch)


def backward(operator: DelayedOperator, batch: int) -> None:
    if operator.stage == 1:
        operator.backward_part(3, batch)
        operator.backward_part(2, batch)
        operator.send(1, batch, True)
    else:
        operator.recv(1, batch, True)
        operator.backward_part(1, batch)
        operator.backward_part(0, batch)


def test_transfers() -> None:
    """What the tests below name by number."""

    def look(operator: DelayedOperator) -> None:
        assert [(t.source, t.target, t.diff) for t in operator.transfers] == [(None, 3, False), (1, 2, True)]

    run(look)


def test_gradients_are_by_the_weights_of_the_forward_pass() -> None:
    """Batches 0 to 3; stage 0 differentiates each one an iteration later, with other weights meanwhile."""
    expected = [alone(batch) for batch in range(4)]

    def iterate(operator: DelayedOperator) -> None:
        net = operator.net
        for now in range(4):
            forward(operator, now)
            batch = now if operator.stage == 1 else now - 1
            if batch >= 0:
                backward(operator, batch)
                found = grads_of(net)
                assert set(found) == {p.index for p in net.held if net.value(p).requires_grad}
                for index, grad in found.items():
                    assert torch.allclose(grad, expected[batch][index], rtol=1e-5, atol=1e-7), (now, index)
            operator.expect_diffs(now, 0)
            operator.finish(batch)
            change(net, now)

    run(iterate)


def test_layers_have_their_own_parameters_again() -> None:
    def look(operator: DelayedOperator) -> None:
        net = operator.net
        forward(operator, 0)
        for param in net.held:
            node = net.graph.nodes[param.layer]
            assert net.layer(node).blobs[param.blob] is net.value(param)

    run(look)


def test_also_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def look(operator: DelayedOperator) -> None:
        if operator.stage:
            return
        net = operator.net
        layer = net.layer(net.graph.nodes[1])
        operator.draw(0)

        def fail(*bottoms: Tensor) -> Tensor:
            assert layer.blobs[0] is not net.value(net.held[0])  # computes by a copy
            raise KeyError("on purpose")

        layer.forward = fail  # type: ignore[method-assign]
        with pytest.raises(KeyError):
            operator.forward_part(0, 0)
        assert layer.blobs[0] is net.value(net.held[0])

    run(look)


def test_memory_is_let_go() -> None:
    """Copies of the weights, and blobs, live for as many batches as are under way."""

    def iterate(operator: DelayedOperator) -> None:
        for now in range(4):
            forward(operator, now)
            batch = now if operator.stage == 1 else now - 1
            if batch >= 0:
                backward(operator, batch)
            operator.expect_diffs(now, 0)
            operator.finish(batch if batch >= 0 else None)
            under_way = [] if operator.stage == 1 else [now]
            assert sorted(operator._flights) == under_way
            assert sorted(operator._copies) == under_way
            assert sorted(operator._rotations) in ([], under_way)

    run(iterate)


def test_the_last_stage_needs_no_copies() -> None:
    def look(operator: DelayedOperator) -> None:
        forward(operator, 0)
        trained = sum(1 for value in set(operator.net.parameters()) if value.requires_grad)
        assert len(operator._copies.get(0, {})) == (0 if operator.stage else trained)

    run(look)
