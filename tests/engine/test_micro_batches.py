"""Micro-batches under way: the pass of each, what is kept and dropped, and the outputs that they add up to."""

from __future__ import annotations

import torch

from bpt.engine.micro_batches import DelayedBatches, MicroBatches, PassOutputs
from bpt.engine.scheduler import TEST_BATCH
from bpt.engine.segment_state import MicroBatchState
from bpt.nn.net import Net
from bpt.nn.pass_context import PassContext
from tests.support.golden_cases import graph_of

NET = """layer { name: "in" type: "Input" top: "x" top: "y" input_param { shape { dim: 4 dim: 2 } } }
    layer { name: "out" type: "TanH" bottom: "x" top: "out" }
    layer { name: "loss" type: "Reduction" bottom: "y" top: "loss" loss_weight: 1 }"""


def net_of() -> Net:
    return Net(graph_of(NET), PassContext(seed=3))


def facts(context: PassContext) -> tuple[int, int, int | None, float]:
    return context.iteration, context.pass_number, context.micro_batch, context.loss_scale


def test_each_micro_batch_knows_its_pass() -> None:
    batches = MicroBatches(net_of(), 3)
    batches.begin(iteration=5, count=6, number=2, loss_scale=8.0)
    assert [facts(batches.context_of(micro)) for micro in range(6)] == [
        (5, 2, 0, 8), (5, 2, 1, 8), (5, 2, 2, 8), (5, 3, 0, 8), (5, 3, 1, 8), (5, 3, 2, 8),
    ]  # fmt: skip
    assert [batches.first_of(micro) for micro in range(6)] == [0, 0, 0, 3, 3, 3]
    assert [batches.has_next(micro) for micro in range(6)] == [True] * 5 + [False]
    whole = MicroBatches(net_of(), 1)
    whole.begin(iteration=0, count=2, number=0, loss_scale=1.0)
    assert [facts(whole.context_of(micro)) for micro in range(2)] == [(0, 0, None, 1), (0, 1, None, 1)]


def test_states_last_until_their_micro_batch_ends() -> None:
    batches = MicroBatches(net_of(), 2)
    batches.begin(iteration=0, count=4, number=0, loss_scale=1.0)
    states = batches.states_from(1, 3)
    assert [facts(state.context)[1:3] for state in states] == [(0, 1), (1, 0), (1, 1)]
    assert [batches.state_of(micro) for micro in (1, 2, 3)] == states
    assert all(batches.state_of(micro) is state for micro, state in zip((1, 2, 3), states, strict=True))
    batches.rotations[2] = 0.25
    assert [batches.state_of(micro).context.rotation for micro in (1, 2, 3)] == [0, 0.25, 0.25]
    batches.end(2)
    assert sorted(batches.states) == [1, 3] and batches.rotations == {}
    batches.rotations[0] = 0.5
    batches.end_iteration()
    assert batches.states == batches.rotations == {}


def test_delayed_batches_outlive_their_iteration() -> None:
    batches = DelayedBatches(net_of())
    batches.begin(iteration=3, count=1, number=0, loss_scale=1.0)
    for batch in (3, TEST_BATCH):
        assert facts(batches.state_of(batch).context) == (3, 0, None, 1)
        assert not batches.has_next(batch)
    batches.end_iteration()
    assert list(batches.states) == [3]
    batches.clear()
    assert batches.states == {}


def test_outputs_are_joined_and_losses_summed() -> None:
    net = net_of()
    edges = {edge.blob: edge.index for edge in net.graph.edges}
    outputs = PassOutputs(net)
    for part in range(2):
        values = {edges["out"]: torch.full((2, 2), float(part)), edges["loss"]: torch.tensor(1.5 + part)}
        values[edges["x"]] = torch.zeros(2, 2)  # which is no output
        outputs.add(MicroBatchState(PassContext(pass_number=1, micro_batch=part), values), list(values))
    made = outputs.pop()
    assert facts(made.context) == (0, 1, None, 1)
    assert {edge: value.tolist() for edge, value in made.values.items()} == {
        edges["out"]: [[0, 0], [0, 0], [1, 1], [1, 1]], edges["loss"]: 4,
    }  # fmt: skip
    assert outputs.pop().values == {}


def test_outputs_of_layers_without_bottoms_are_whole() -> None:
    net = Net(graph_of('layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 4 } } }'))
    outputs, tops = PassOutputs(net), {edge.index: torch.ones(4) for edge in net.graph.edges}
    outputs.set_whole(tops)
    assert outputs.pop().values == {edge.index: tops[edge.index] for edge in net.graph.outputs}
