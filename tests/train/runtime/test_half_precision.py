"""``precision: BFLOAT16`` and ``AUTO``: on one rank, on many, in pipelines, and from a snapshot on.

What a net computes is compared with a plain program in the same numbers; everything else with one process.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

import bpt
from bpt.apps.score.score_model import score
from bpt.base.errors import PrototxtError, UserError
from bpt.cli import options
from bpt.config.plan.resolve import read_plan
from bpt.config.precision import AUTO, BFLOAT16, FLOAT32, PRECISIONS
from bpt.graph.autocast import blob_itemsizes
from bpt.graph.layer_graph import LayerNode
from bpt.nn.net import Net
from bpt.nn.net_graph import build_graph_of
from bpt.parallel.pipeline.placement.problem import costs_of
from bpt.parallel.pipeline.stage_links import StageLinks
from bpt.perf.timing.benchmark import time_model
from bpt.system.comm.base import Communicator
from bpt.system.comm.serial import SerialCommunicator
from bpt.system.device import CPU
from bpt.system.device import half_support as half
from bpt.train.runtime import half_precision as module
from bpt.train.runtime.half_precision import precision_here, times_of
from bpt.train.solver.solver import Solver
from tests.support.doubles.thread_ranks import run_ranks
from tests.support.one_layer import gradient_of
from tests.support.spread_runs import train

HALF = "precision: BFLOAT16"
DEPLOY = """
layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 2 dim: 2 dim: 6 dim: 6 } } }
layer { name: "conv" type: "Convolution" bottom: "x" top: "conv"
  convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: "xavier" } } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "ip" type: "InnerProduct" bottom: "conv" top: "ip"
  inner_product_param { num_output: 3 weight_filler { type: "xavier" } } }
"""


@pytest.fixture(autouse=True)
def slow_bfloat16(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every CPU computes in bfloat16, if slowly."""
    monkeypatch.setattr(half, "has_instructions", lambda: True)
    half.disagreement.cache_clear()
    yield
    half.disagreement.cache_clear()


def losses(ranks: int, *overrides: str) -> list[float]:
    """Of six iterations, on the first rank."""

    def run(comm: Communicator) -> list[float]:
        with Solver(read_plan("solver.prototxt", (*overrides, "test_interval: 100")), world=comm) as solver:
            found = []
            for _ in range(6):
                solver.step(1)
                found.append(solver.loss)
            return found

    return run_ranks(ranks, run)[0]


def test_it_computes_what_a_plain_program_does_in_bfloat16() -> None:
    with Solver(read_plan("solver.prototxt", (HALF, "iter_size: 1"))) as solver:
        net, operator = solver.net, solver.runtime.nets.train.operator
        values = {key: value.detach().clone().requires_grad_() for key, value in net.values_by_name().items()}
        drawn = net.draw()
        data, label = (drawn[edge] for edge in net.graph.nodes[0].tops)
        edges = {node.name: edge for node in net.graph.nodes for edge in node.tops}
        context = net.context
        blobs = dict(drawn)
        net.sources_apart = True
        net.run(0, len(net.graph), blobs, None)
        blobs[edges["loss"]].backward()
        assert operator.net is net and net.context is context

    x = functional.conv2d(data.bfloat16(), values["conv", 0].bfloat16())
    x = functional.batch_norm(x, None, None, training=True)
    mask = blobs[edges["drop"]] / x.detach()  # what was drawn is not the matter here
    x = x * torch.where(mask.float().abs() > 1, 2.0, 0.0).bfloat16()
    x = functional.linear(x.flatten(1), values["fc", 0].bfloat16(), values["fc", 1].bfloat16()).relu()
    x = functional.linear(x, values["ip", 0].bfloat16(), values["ip", 1].bfloat16())
    loss = functional.cross_entropy(x.float(), label.long())
    loss.backward()
    assert blobs[edges["ip"]].dtype == torch.bfloat16 and blobs[edges["loss"]].dtype == torch.float32
    assert blobs[edges["loss"]].item() == pytest.approx(loss.item(), rel=4e-3)
    for key, value in net.values_by_name().items():
        if value.grad is not None:
            assert value.grad.dtype == torch.float32
            size = gradient_of(values[key]).abs().max().item()
            torch.testing.assert_close(value.grad, values[key].grad, rtol=0, atol=0.02 * size, msg=str(key))


def test_statistics_and_weights_stay_in_single_precision() -> None:
    train(1, HALF)
    with Solver(read_plan("solver.prototxt", (HALF,))) as solver:
        solver.restore("small_iter_9.solverstate")
        assert {value.dtype for value in solver.net.values_by_name().values()} == {torch.float32}
        state = solver.runtime.state()
        assert {moment.dtype for moments in state.moments.values() for moment in moments} == {torch.float32}
        statistics = solver.net.values_by_name()["bn", 0]
        assert (statistics.bfloat16().float() != statistics).any()


@pytest.mark.parametrize(
    ("ranks", "overrides"),
    [
        (2, ""),
        (2, "exchange: RING"),
        (2, "exchange: CGDP cgdp_param { chunk_size: 1 }"),
        (2, "num_stages: 2 pipeline_param { micro_batches: 1 }"),
        (2, "num_shards: 2"),
        (3, "num_shards: 3 fc_param { scheme: MASTER_SLAVE }"),
        (4, "num_stages: 2 num_shards: 2 pipeline_param { micro_batches: 1 }"),
        (1, "inner_param { engine: TASK_DAG num_threads: 2 }"),
        (2, "num_stages: 2 pipeline_param { micro_batches: 1 } inner_param { engine: TASK_DAG num_threads: 2 }"),
    ],
)
def test_many_ranks_follow_one_process(ranks: int, overrides: str) -> None:
    """As far as roundings of 1 in 256 let them; and that is nearer than to the run in single precision."""
    parallel = f"parallel_param {{ sync_batch_norm: true {overrides} }}"
    np.testing.assert_allclose(losses(ranks, HALF, parallel), losses(1, HALF), rtol=0.02)


def test_pipelines_send_two_bytes_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[torch.dtype] = []
    send = StageLinks.send

    def noted(links: StageLinks, blob: torch.Tensor, *rest: Any) -> None:
        if blob.dim() > 1:  # neither labels nor rotations
            sent.append(blob.dtype)
        send(links, blob, *rest)

    monkeypatch.setattr(StageLinks, "send", noted)
    stages = "parallel_param { num_stages: 2 sync_batch_norm: true pipeline_param { micro_batches: 1 } }"
    losses(2, HALF, stages, "test_initialization: false")
    assert len(sent) == 2 * 2 * 6 and set(sent) == {torch.bfloat16}  # forward and back, in both passes


def test_a_run_goes_on_from_its_snapshot_bit_for_bit() -> None:
    train(1, HALF, "snapshot: 5")
    weights = Path("small_iter_9.caffemodel").read_bytes()
    train(1, HALF, resume="small_iter_5.solverstate")
    assert Path("small_iter_9.caffemodel").read_bytes() == weights


class Measured:
    """Stands for a clock: seconds in single and in half precision, by the layer's type."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds: dict[str, tuple[float, float]]) -> None:
        self.calls = 0

        def measure(net: Net, node: LayerNode, *rest: object) -> tuple[float, float]:
            self.calls += 1
            return seconds[node.name]

        monkeypatch.setattr(module, "_seconds", measure)


SECONDS = {"conv": (4.0, 1.0), "fc": (2.0, 1.9), "ip": (1.0, 2.0)}  # fc gains too little


def half_layers(ranks: int, *overrides: str) -> list[set[str]]:
    def run(comm: Communicator) -> set[str]:
        with Solver(read_plan("solver.prototxt", ("precision: AUTO", *overrides)), world=comm) as solver:
            net = solver.net
            return {node.name for node in net.graph.nodes if net.precision.in_half.layers[node.index]}

    return run_ranks(ranks, run)


def test_auto_takes_the_layers_that_are_faster(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    Measured(monkeypatch, SECONDS)
    with caplog.at_level("INFO", "bpt"):
        assert half_layers(1) == [{"conv", "bn", "drop"}]
    (line,) = [line for line in caplog.messages if line.startswith("Precision")]
    assert line == (
        "Precision: BFLOAT16 in 1 of the 3 layers that multiply, all but fc, ip: together 4e+03 ms, in FLOAT32 7e+03 ms"
    )


def test_all_ranks_of_a_pipeline_know_what_each_has_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    Measured(monkeypatch, SECONDS)
    stages = "parallel_param { num_stages: 2 sync_batch_norm: true pipeline_param { micro_batches: 1 } }"
    assert half_layers(2, stages) == [{"conv", "bn", "drop"}] * 2


def test_a_snapshot_keeps_what_auto_chose(monkeypatch: pytest.MonkeyPatch) -> None:
    Measured(monkeypatch, SECONDS)
    train(1, "precision: AUTO", "snapshot: 5")
    weights = Path("small_iter_9.caffemodel").read_bytes()
    other = Measured(monkeypatch, dict.fromkeys(SECONDS, (1.0, 2.0)))
    train(1, "precision: AUTO", resume="small_iter_5.solverstate")
    assert not other.calls
    assert Path("small_iter_9.caffemodel").read_bytes() == weights


def test_layers_are_timed_by_their_own_blobs() -> None:
    with Solver(read_plan("solver.prototxt", ("precision: AUTO",))) as solver:
        times = times_of(solver.net, CPU)
        assert set(times) == {"conv", "fc", "ip"} and all(min(pair) > 0 for pair in times.values())
        assert all(value.grad is None for value in solver.net.values_by_name().values())


def test_a_cpu_without_instructions_is_refused_by_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(half, "has_instructions", lambda: False)
    plan = read_plan("solver.prototxt", (HALF,))
    with pytest.raises(PrototxtError, match="precision: BFLOAT16 cannot be: this CPU has no instruction for bfloat16"):
        precision_here(plan, SerialCommunicator(), CPU)

    def run(comm: Communicator) -> str:
        with pytest.raises(PrototxtError) as caught:
            precision_here(plan, comm, CPU)
        return str(caught.value)

    first, second = run_ranks(2, run)
    assert first == second and "rank 0 on host" in first and "AUTO finds out" in first


def test_auto_is_single_precision_on_such_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(half, "has_instructions", lambda: False)
    assert precision_here(read_plan("solver.prototxt", ("precision: AUTO",)), SerialCommunicator(), CPU).half is None
    assert losses(1, "precision: AUTO") == losses(1)


def test_wrong_kernels_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = half._convolve

    def wrong(x: torch.Tensor, *rest: object) -> tuple[torch.Tensor, ...]:
        top, diff, gradient = right(x, *rest)  # type: ignore[arg-type]
        return top, diff * (1.1 if x.dtype == torch.bfloat16 else 1), gradient

    assert half.without_half(CPU, torch.bfloat16) == ""
    half.disagreement.cache_clear()
    monkeypatch.setattr(half, "_convolve", wrong)
    assert half.without_half(CPU, torch.bfloat16).startswith("its convolution's diff (kernel 1, stride 1, group 1) in")


def test_float16_is_for_gpus() -> None:
    with pytest.raises(PrototxtError, match="CPUs have no float16 products; use BFLOAT16"):
        precision_here(read_plan("solver.prototxt", ("precision: FLOAT16",)), SerialCommunicator(), CPU)


def test_names_of_precisions() -> None:
    for precision in (BFLOAT16, AUTO):
        assert read_plan("solver.prototxt", (f"precision: {precision.name}",)).precision is precision


def test_a_forecast_counts_two_bytes_where_blobs_have_two() -> None:
    """Of conv's 4 x 16 elements a sample and so on; a batch has 6 samples. The loss, data and labels stay at four."""
    graph = build_graph_of(read_plan("solver.prototxt").train)
    single, half = (
        {cost.name: cost.activations for cost in costs_of(graph, precision)} for precision in (FLOAT32, BFLOAT16)
    )
    assert single["conv"] == 4 * 6 * 4 * 16 and half["conv"] == 2 * 6 * 4 * 16
    assert half["ip"] == 2 * 6 * 3
    assert half["data"] == single["data"] and half["loss"] == single["loss"] == 4
    assert sum(blob_itemsizes(graph, AUTO)) == 4 * len(graph.edges)  # nobody knows yet


def test_a_net_outside_of_a_run() -> None:
    """Its arrays and tensors are of float32, what it computes is not; a copy by pickle computes the same."""
    Path("deploy.prototxt").write_text(DEPLOY)
    x = torch.randn(2, 2, 6, 6, generator=torch.Generator().manual_seed(2))
    single, half = (bpt.load_module("deploy.prototxt", precision=name) for name in ("FLOAT32", "BFLOAT16"))
    expected, found = single(x), half(x)
    assert found.dtype == torch.float32 and not torch.equal(found, expected)
    torch.testing.assert_close(found, expected, rtol=0, atol=0.02 * expected.abs().max().item())
    assert torch.equal(pickle.loads(pickle.dumps(half))(x), found)
    net = bpt.Net("deploy.prototxt", bpt.TEST, precision="BFLOAT16")
    scores = net.forward(x=x.numpy())["ip"]
    assert scores.dtype == np.float32
    np.testing.assert_allclose(scores, found.detach().numpy(), rtol=0, atol=0.01 * expected.abs().max().item())
    with pytest.raises(UserError, match='precision "HALF" is none of FLOAT32'):
        bpt.load_module("deploy.prototxt", precision="HALF")


def test_it_is_scored_and_timed_in_half_precision(caplog: pytest.LogCaptureFixture) -> None:
    train(1)
    single, half = (
        score("net.prototxt", ["small_iter_9.caffemodel"], 2, CPU, precision=name).outputs["scores"]
        for name in ("FLOAT32", "BFLOAT16")
    )
    torch.testing.assert_close(half, single, rtol=0, atol=0.02)
    assert not torch.equal(half, single)
    with caplog.at_level("INFO", "bpt"):
        time_model("net.prototxt", "TRAIN", 0, (), CPU, 1, "", precision="BFLOAT16")
    assert any(line.startswith("Roofline of BFLOAT16") for line in caplog.messages)


def test_the_command_line_knows_all_of_them() -> None:
    assert tuple(PRECISIONS) == options.PRECISIONS
