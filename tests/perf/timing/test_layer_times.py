"""Times of layers and of micro-batches, by a clock of the test."""

from __future__ import annotations

import itertools
import time

import pytest
import torch

from bpt.config.proto import bpt_pb2 as pb
from bpt.engine.instructions import LoadBatch
from bpt.engine.memory_format_choice import MemoryFormatChoice
from bpt.engine.operator import Operator
from bpt.graph.segments import cut, per_layer
from bpt.nn.net import Net
from bpt.nn.pass_context import PassContext
from bpt.parallel.pipeline.stage import Stage
from bpt.parallel.pipeline.stage_links import StageLinks
from bpt.perf.timing.layer_times import WARM_UP, RepetitionTimes, Stopwatch, choose_layout, time_layers, time_passes
from bpt.perf.timing.micro_batch_times import time_parts
from bpt.system.comm.serial import SerialCommunicator
from tests.support.golden_cases import graph_of

LAYERS_NET = """
layer { name: "in" type: "Input" top: "x" top: "y" input_param { shape { dim: 4 dim: 5 } shape { dim: 4 } } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip"
        inner_product_param { num_output: 3 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "y" top: "loss" }
"""
SECONDS = itertools.count()


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """``time.perf_counter`` goes on by one second whenever it is asked."""
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(SECONDS)))


def whole() -> Operator:
    return Operator(Net(graph_of(LAYERS_NET)))


def by_layer() -> Operator:
    net = Net(graph_of(LAYERS_NET))
    return Operator(net, per_layer(net.graph))


def gradients(operator: Operator) -> list[torch.Tensor]:
    return [value.grad for value in operator.net.parameters() if value.grad is not None]


def test_statistics_by_hand() -> None:
    times = RepetitionTimes((9.0, 1.0, 3.0, 2.0, 4.0))
    # Sorted 1 2 3 4 9: quartiles 2 and 4; (9 + 1 + 3 + 2 + 4) / 5.
    assert (times.mean, times.median, times.spread) == (3.8, 3.0, 1.0)
    assert RepetitionTimes((7.0,)).spread == 0


def test_a_stopwatch_starts_anew_after_each_round() -> None:
    stopwatch = Stopwatch(torch.device("cpu"))
    for marks in (3, 2):
        for _ in range(marks):
            stopwatch.mark()
        assert stopwatch.laps() == [1.0] * (marks - 1)


def test_every_layer_is_timed_by_itself() -> None:
    operator = by_layer()
    times = time_layers(operator, iterations=3)
    assert [layer.node.name for layer in times] == ["in", "ip", "loss"]
    for layer in times:
        assert layer.forward.samples == layer.backward.samples == (1.0, 1.0, 1.0)
    assert gradients(operator) == []


def test_layers_are_not_mixed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forward of layer k takes k seconds longer than its backward, which takes 10 k."""
    operator = by_layer()
    extra = iter([0, 1, 2, 20, 10, 0] * (WARM_UP + 1))
    for name in ("forward", "backward"):
        step = getattr(operator, name)

        def slow(index: int, step=step) -> None:  # type: ignore[no-untyped-def]
            step(index)
            for _ in range(next(extra)):
                next(SECONDS)

        monkeypatch.setattr(operator, name, slow)
    times = time_layers(operator, iterations=1)
    assert [layer.forward.samples for layer in times] == [(1.0,), (2.0,), (3.0,)]
    assert [layer.backward.samples for layer in times] == [(1.0,), (11.0,), (21.0,)]


def test_passes_without_an_update() -> None:
    operator = whole()
    seen: list[tuple[int, float]] = []
    times = time_passes(operator, iterations=3, each=lambda number, seconds: seen.append((number, seconds)))
    assert times.forward.samples == times.backward.samples == (1.0, 1.0, 1.0)
    assert times.iteration.samples == (2.0, 2.0, 2.0)
    assert times.update is None
    assert seen == [(1, 2.0), (2, 2.0), (3, 2.0)]  # none of the warm-up
    assert gradients(operator) == []


def test_passes_with_an_update_that_sees_the_gradients() -> None:
    operator = whole()
    found: list[int] = []
    times = time_passes(operator, iterations=2, update=lambda: found.append(len(gradients(operator))))
    assert times.update is not None
    assert times.update.samples == (1.0, 1.0)
    assert times.iteration.samples == (3.0, 3.0)
    assert found == [2] * (WARM_UP + 2)  # weight and bias, each time


def test_gradients_do_not_add_up_over_the_passes() -> None:
    operator = whole()
    norms: list[float] = []
    time_passes(operator, 3, update=lambda: norms.append(sum(g.abs().sum().item() for g in gradients(operator))))
    assert norms == pytest.approx([norms[0]] * len(norms))
    assert norms[0] > 0


def test_a_layout_is_chosen_by_passes_that_leave_no_gradient() -> None:
    operator, choice = whole(), MemoryFormatChoice(pb.SolverParameter.AUTO)
    choose_layout(operator, choice)
    assert choice.settled
    assert operator.engine == choice.engine == pb.SolverParameter.CHANNELS_LAST  # a tie: each pass takes a second
    assert {len(seconds) for seconds in choice.seconds.values()} == {5}
    assert gradients(operator) == []


def test_a_layout_that_is_set_is_not_measured() -> None:
    operator, choice = whole(), MemoryFormatChoice(pb.SolverParameter.CHANNELS_LAST)
    choose_layout(operator, choice)
    assert operator.engine == pb.SolverParameter.CHANNELS_LAST
    assert not any(choice.seconds.values())


BATCHES_NET = """
layer { name: "in" type: "Input" top: "x" top: "y" input_param { shape { dim: 5 dim: 5 } shape { dim: 5 } } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip"
        inner_product_param { num_output: 3 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "y" top: "loss" }
"""


def operator(micro_batches: int, seed: int = 0) -> Operator:
    """One stage, with a segment for each layer."""
    graph = graph_of(BATCHES_NET)
    segments = cut(graph, range(len(graph)), sources_apart=True)
    net = Net(graph, PassContext(seed))
    stage = Stage(StageLinks(SerialCommunicator()), (0,) * 3, lambda edge: torch.float32)
    return Operator(net, segments, stage=stage, splits=(micro_batches,))


def test_what_each_segment_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forward of segment i takes 1 + i seconds, backward ten times as many; a second micro-batch the double."""
    now = [0.0]
    found = operator(2)
    forward, backward, load_batch = found.forward, found.backward, found.batches.load_batch
    batches = []

    def forwards(index: int, micro: int) -> None:
        now[0] += (1 + index) * (1 + micro)
        forward(index, micro)

    def backwards(index: int, micro: int) -> None:
        now[0] += 10 * (1 + index) * (1 + micro)
        backward(index, micro)

    def loading(instruction: LoadBatch) -> None:
        now[0] += 1000
        load_batch(instruction)
        batches.append(found.values)

    def update() -> None:
        now[0] += 7
        found.net.zero_grad()

    monkeypatch.setattr(found, "forward", forwards)
    monkeypatch.setattr(found, "backward", backwards)
    monkeypatch.setattr(found.batches, "load_batch", loading)
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    times = time_parts(found, 3, update)
    assert [segment.samples for segment in times.forward] == [(3.0,) * 3, (6.0,) * 3, (9.0,) * 3]
    assert [segment.samples for segment in times.backward] == [(30.0,) * 3, (60.0,) * 3, (90.0,) * 3]
    assert times.update.samples == (7.0,) * 3
    assert len(batches) == WARM_UP + 3


def test_one_micro_batch_is_the_batch() -> None:
    found = operator(1)
    times = time_parts(found, 1, found.net.zero_grad)
    assert len(times.forward) == len(times.backward) == 3
    assert min(times.forward[1].samples) > 0


def test_gradients_are_those_of_the_batch() -> None:
    """What is timed is the whole batch, whatever the micro-batches: 5 samples go as 3 and 2."""
    seen = []
    for micro_batches in (1, 2):
        found = operator(micro_batches, seed=1)
        gradients: list[torch.Tensor] = []

        def update(found: Operator = found, gradients: list[torch.Tensor] = gradients) -> None:
            gradients[:] = [value.grad.clone() for value in found.net.parameters() if value.grad is not None]

        time_parts(found, 1, update)
        seen.append(gradients)
    assert len(seen[0]) == 2
    for one, other in zip(*seen, strict=True):
        torch.testing.assert_close(one, other)
