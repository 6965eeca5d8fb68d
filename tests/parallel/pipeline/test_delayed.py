"""A delay: a batch is differentiated by the weights of its forward pass, whatever has come since."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from bpt.engine.instructions import LoadBatch, PostRecv, Recv, ReleaseBatch, Send
from bpt.engine.operator import Operator
from bpt.graph.segments import cut
from bpt.graph.stages import part_of
from bpt.nn.net import Net
from bpt.nn.pass_context import PassContext
from bpt.parallel.pipeline.stage import Stage
from bpt.parallel.pipeline.stage_links import StageLinks
from bpt.system.comm.base import Communicator
from tests.parallel.pipeline.stages import SEED, batches_of, grads_of
from tests.support.cut_nets import layer
from tests.support.doubles.thread_ranks import run_ranks
from tests.support.golden_cases import graph_of
from tests.support.sharded_operators import fc

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


def run(function: Callable[[Operator], object]) -> None:
    """On two stages, each cut into two segments."""

    def stage(comm: Communicator) -> None:
        net = Net(GRAPH, PassContext(SEED), part=part_of(GRAPH, STAGES, comm.rank))
        links = StageLinks(comm)
        segments = cut(GRAPH, [0, 3, 5, 6], sources_apart=True)
        stage = Stage(links, STAGES, lambda edge: torch.float32)
        operator = Operator(net, segments, stage=stage, delay=1 - comm.rank)
        function(operator)
        links.wait()
        links.close()

    run_ranks(2, stage, timeout=120)


def change(net: Net, step: int) -> None:
    """A made-up update of what is trained."""
    with torch.no_grad():
        for value in net.parameters():
            if value.requires_grad:
                value.mul_(1 + 0.5 * step).add_(0.1)
                value.grad = None


def alone(batch: int) -> dict[int, Tensor]:
    """Gradients of a batch by the weights of its iteration, in one process."""
    net = Net(GRAPH, PassContext(SEED, iteration=batch))
    for step in range(batch):
        change(net, step)
    operator = Operator(net)
    operator.forward(0)
    operator.backward(0)
    return grads_of(net)


def stage_of(operator: Operator) -> int:
    assert operator.stage is not None
    return operator.stage.number


def forward(operator: Operator, batch: int) -> None:
    batches = batches_of(operator)
    batches.begin(batch, 1)
    if stage_of(operator) == 0:
        batches.load_batch(LoadBatch(batch))
        batches.send(Send(0, batch))
        operator.forward(0, batch)
        operator.forward(1, batch)
        batches.send(Send(1, batch))
    else:
        batches.recv(Recv(1, batch))
        operator.forward(2, batch)
        batches.recv(Recv(0, batch))
        operator.forward(3, batch)


def backward(operator: Operator, batch: int) -> None:
    batches = batches_of(operator)
    if stage_of(operator) == 1:
        operator.backward(3, batch)
        operator.backward(2, batch)
        batches.send(Send(1, batch, diff=True))
    else:
        batches.recv(Recv(1, batch, diff=True))
        operator.backward(1, batch)
        operator.backward(0, batch)


def test_transfers() -> None:
    """What the tests below name by number."""

    def look(operator: Operator) -> None:
        assert operator.stage is not None
        assert [(t.source, t.target, t.diff) for t in operator.stage.transfers] == [(None, 3, False), (1, 2, True)]

    run(look)


def test_gradients_are_by_the_weights_of_the_forward_pass() -> None:
    """Batches 0 to 3; stage 0 differentiates each one an iteration later, with other weights meanwhile."""
    expected = [alone(batch) for batch in range(4)]

    def iterate(operator: Operator) -> None:
        net = operator.net
        for now in range(4):
            forward(operator, now)
            batch = now if stage_of(operator) == 1 else now - 1
            if batch >= 0:
                backward(operator, batch)
                found = grads_of(net)
                assert set(found) == {p.index for p in net.local_params if net.value(p).requires_grad}
                for index, grad in found.items():
                    assert torch.allclose(grad, expected[batch][index], rtol=1e-5, atol=1e-7), (now, index)
            if stage_of(operator) == 0:
                batches_of(operator).post_recv(PostRecv(1, now))
            batches_of(operator).release_batch(ReleaseBatch(batch if batch >= 0 else None))
            change(net, now)

    run(iterate)


def test_layers_have_their_own_parameters_again() -> None:
    def look(operator: Operator) -> None:
        net = operator.net
        forward(operator, 0)
        for param in net.local_params:
            node = net.graph.nodes[param.layer]
            assert net.layer(node).blobs[param.blob] is net.value(param)

    run(look)


def test_also_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def look(operator: Operator) -> None:
        if stage_of(operator):
            return
        net = operator.net
        layer = net.layer(net.graph.nodes[1])
        batches_of(operator).load_batch(LoadBatch(0))

        def fail(*bottoms: Tensor) -> Tensor:
            assert layer.blobs[0] is not net.value(net.local_params[0])  # computes by a copy
            raise KeyError("on purpose")

        layer.forward = fail  # type: ignore[method-assign]
        with pytest.raises(KeyError):
            operator.forward(0, 0)
        assert layer.blobs[0] is net.value(net.local_params[0])

    run(look)


def test_memory_is_let_go() -> None:
    """Copies of the weights, and blobs, live for as many batches as are under way."""

    def iterate(operator: Operator) -> None:
        for now in range(4):
            forward(operator, now)
            batch = now if stage_of(operator) == 1 else now - 1
            if batch >= 0:
                backward(operator, batch)
            if stage_of(operator) == 0:
                batches_of(operator).post_recv(PostRecv(1, now))
            batches_of(operator).release_batch(ReleaseBatch(batch if batch >= 0 else None))
            under_way = [] if stage_of(operator) == 1 else [now]
            assert sorted(batches_of(operator).under_way.states) == under_way
            assert (
                sorted(micro for micro, state in batches_of(operator).under_way.states.items() if state.weights)
                == under_way
            )
            assert sorted(batches_of(operator).under_way.rotations) in ([], under_way)

    run(iterate)


def test_the_last_stage_needs_no_copies() -> None:
    def look(operator: Operator) -> None:
        forward(operator, 0)
        trained = sum(1 for value in set(operator.net.parameters()) if value.requires_grad)
        assert len(batches_of(operator).under_way.states[0].weights) == (0 if stage_of(operator) else trained)

    run(look)
