from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
import torch

from bpt.config.plan.run_plan import RunPlan
from bpt.config.precision import FLOAT32
from bpt.config.proto import bpt_pb2 as pb
from bpt.engine.memory_format_choice import MemoryFormatChoice
from bpt.engine.operator import Operator
from bpt.graph.layer_graph import LayerGraph
from bpt.nn.layers.base import batch_of
from bpt.nn.layers.data import Data
from bpt.nn.net import Net
from bpt.nn.net_graph import build_graph_of
from bpt.perf.speeds.step_benchmark import StepBenchmark
from bpt.system.device import CPU
from tests.support.golden_cases import graph_of
from tests.support.lmdbs import write_images
from tests.support.small_solver import NET, small_solver


class Seen:
    """What the operators of a rehearsal run: rows of the net's blobs, in order of their passes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows: list[set[int]] = []
        self.nets: list[Net] = []
        self.blobs: list[torch.Tensor] = []
        run = Net.run

        def spy(net: Net, start: int, end: int, values: dict[int, torch.Tensor], keep: object, place: object) -> None:
            run(net, start, end, values, None, place)  # type: ignore[arg-type]
            batches = [value for edge, value in values.items() if net.graph.edges[edge].shape]
            self.rows.append({len(value) for value in batches})
            self.blobs.append(batches[0].clone())
            self.nets.append(net)

        monkeypatch.setattr(Net, "run", spy)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    return Seen(monkeypatch)


def rehearsal(tmp_path: Path, *overrides: str, net: str = NET, ranks: int = 1) -> StepBenchmark:
    solver = small_solver(tmp_path, *overrides, net=net)
    return StepBenchmark(build_graph_of(solver.train), solver, CPU, ranks=ranks)


@pytest.mark.parametrize("ranks", [1, 3])
def test_any_number_of_samples(tmp_path: Path, seen: Seen, ranks: int) -> None:
    work = rehearsal(tmp_path, ranks=ranks)
    for samples in (1, 5, 8, 20):
        work.resize(samples)
        assert 0 < work.run() < 10
    assert seen.rows == [{1}, {5}, {8}, {20}]
    work.close()


def test_in_pieces(tmp_path: Path, seen: Seen) -> None:
    """Two layers are trained, so there are two at most; and none where nothing is."""
    work = rehearsal(tmp_path)
    work.resize(2)
    assert [work.cut(number) for number in (1, 2, 24)] == [1, 2, 2]
    assert work.run() > 0
    assert seen.rows == [{2}, {2}]
    work.close()
    net = NET
    for field in ("convolution_param", "inner_product_param"):
        net = net.replace(field, f"param {{ lr_mult: 0 }} param {{ lr_mult: 0 }} {field}")
    frozen = rehearsal(tmp_path, net=net)
    frozen.resize(2)
    assert frozen.cut(24) == 1
    frozen.close()


def test_without_samples_nothing_runs(tmp_path: Path, seen: Seen) -> None:
    work = rehearsal(tmp_path)
    work.resize(3)
    work.resize(0)
    assert work.run() == 0.0
    assert seen.rows == []


def test_an_iteration_has_all_its_passes_and_an_update(tmp_path: Path, seen: Seen) -> None:
    work = rehearsal(tmp_path, "iter_size: 3 clip_gradients: 1e-6")
    work.resize(2)
    gradients: list[int] = []
    backward = Operator.backward

    def count(operator: Operator, index: int, micro: int | None = None) -> None:
        backward(operator, index, micro)
        gradients.append(sum(value.grad is not None for value in operator.net.parameters()))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Operator, "backward", count)
        work.run()
        work.run()
    assert gradients == [4] * 6
    assert seen.rows == [{2}] * 6
    assert [(net.context.iteration, net.context.pass_number) for net in seen.nets[-1:]] == [(1, 2)]
    assert all(value.grad is None for value in seen.nets[-1].parameters())


@pytest.mark.parametrize("type", ["SGD", "Nesterov", "AdaGrad", "RMSProp", "AdaDelta", "Adam"])
def test_weights_stay_what_they_are(tmp_path: Path, seen: Seen, type: str) -> None:
    momentum = 0 if type in ("AdaGrad", "RMSProp") else 0.9
    work = rehearsal(tmp_path, f'type: "{type}" momentum: {momentum} weight_decay: 0.1 base_lr: 100')
    work.resize(1)
    work.run()
    before = [value.detach().clone() for value in seen.nets[0].parameters()]
    for samples in (1, 4):
        work.resize(samples)
        for _ in range(20):
            work.run()
    after = list(seen.nets[-1].parameters())
    assert len(before) == len(after) == 4
    for old, new in zip(before, after, strict=True):
        torch.testing.assert_close(new.detach(), old, rtol=0, atol=1e-6)


def test_clipping_is_computed_but_not_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    work = rehearsal(tmp_path, "clip_gradients: 1e-6")
    work.resize(4)
    with caplog.at_level(logging.INFO, logger="bpt"):
        work.run()
    assert "clipping" not in caplog.text


def test_data_are_read_on(tmp_path: Path, seen: Seen) -> None:
    """Another number of samples goes on where the last one stopped, as training would."""
    source = write_images(tmp_path / "lmdb", [np.full((1, 2, 2), value, np.uint8) for value in range(10)])
    data = f'data_param {{ source: "{source}" backend: LMDB batch_size: 8 }}'
    layers = """
    layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip" inner_product_param { num_output: 20 } }
    layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "y" top: "loss" }
    """
    work = rehearsal(tmp_path, net=f'layer {{ name: "d" type: "Data" top: "x" top: "y" {data} }} {layers}')
    for samples, runs in ((1, 2), (3, 1), (2, 1)):
        work.resize(samples)
        for _ in range(runs):
            work.run()
    work.close()
    pixels = [blob[:, 0, 0, 0].tolist() for blob in seen.blobs]
    assert pixels == [[0], [1], [2, 3, 4], [5, 6]]


def test_sources_are_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write_images(tmp_path / "lmdb", [np.zeros((1, 2, 2), np.uint8)])
    net = f'layer {{ name: "d" type: "Data" top: "x" data_param {{ source: "{source}" backend: LMDB batch_size: 2 }} }}'
    closed: list[int] = []
    close = Data.close
    monkeypatch.setattr(Data, "close", lambda layer: closed.append(1) or close(layer))
    work = StepBenchmark(graph_of(net), RunPlan(asked_precision=FLOAT32), CPU)
    work.resize(1)
    work.resize(2)
    assert len(closed) == 1
    work.close()
    assert len(closed) == 2


def test_layouts_are_chosen_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The slowest rank counts: what this one measures is replaced by what ``agree`` answers."""
    asked: list[float] = []
    answers = iter([1.0] * 4 + [0.5, 1.0, 1.0, 0.5, 0.5, 1.0])  # contiguous takes half the time

    def agree(seconds: float) -> float:
        asked.append(seconds)
        return next(answers)

    solver = small_solver(tmp_path)
    work = StepBenchmark(build_graph_of(solver.train), solver, CPU, agree=agree)
    work.resize(2)
    choice = MemoryFormatChoice(pb.SolverParameter.AUTO)
    work.settle(choice)
    assert choice.engine == pb.SolverParameter.CONTIGUOUS
    assert len(asked) == 10
    assert all(0 < seconds < 60 for seconds in asked)


def test_memory(tmp_path: Path) -> None:
    work = rehearsal(tmp_path)
    # A sample: images 108, label 1, conv 4 · 4 · 4 = 64, ip 3 floats; the loss is one number for all.
    assert work.blob_bytes == (432, 4 * (108 + 1 + 64 + 3))
    work.resize(4)
    work.run()
    assert work.peak > 2**20
    assert work.room > 0


def graph(*layers: str) -> LayerGraph:
    return graph_of("\n".join(layers))


INPUT = 'layer { name: "in" type: "Input" top: "in" input_param { shape { dim: 3 dim: 5 } } }'
CONSTANT = 'layer { name: "c" type: "DummyData" top: "c" dummy_data_param { shape { dim: 7 } } }'
SCALAR = 'layer { name: "s" type: "DummyData" top: "s" dummy_data_param { shape { } } }'


def test_the_batch_is_that_of_the_first_data_layer(tmp_path: Path) -> None:
    source = write_images(tmp_path / "lmdb", [np.zeros((1, 2, 2), np.uint8)])
    data = (
        f'layer {{ name: "d" type: "Data" top: "d" data_param {{ source: "{source}" backend: LMDB batch_size: 4 }} }}'
    )
    assert batch_of(graph(CONSTANT, data)) == 4
    assert batch_of(graph(SCALAR, INPUT)) == 3
    assert batch_of(graph(SCALAR)) == 0
