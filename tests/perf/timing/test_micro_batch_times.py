"""Timing of micro-batches, with a clock that the work itself moves on."""

from __future__ import annotations

import time

import pytest
import torch

from bpt.engine.instructions import LoadBatch
from bpt.engine.operator import Operator
from bpt.graph.segments import cut
from bpt.nn.net import Net
from bpt.nn.pass_context import PassContext
from bpt.parallel.pipeline.stage import Stage
from bpt.parallel.pipeline.stage_links import StageLinks
from bpt.perf.timing.layer_times import WARM_UP
from bpt.perf.timing.micro_batch_times import time_parts
from bpt.system.comm.serial import SerialCommunicator
from tests.support.golden_cases import graph_of

NET = """
layer { name: "in" type: "Input" top: "x" top: "y" input_param { shape { dim: 5 dim: 5 } shape { dim: 5 } } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip"
        inner_product_param { num_output: 3 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "y" top: "loss" }
"""


def operator(micro_batches: int, seed: int = 0) -> Operator:
    """One stage, with a segment for each layer."""
    graph = graph_of(NET)
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
