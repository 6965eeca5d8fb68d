"""Passes that are captured and replayed give what plain passes give, on a double of CUDA graphs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from torch import Tensor

from bpt.base.errors import DataError
from bpt.engine.graphed_compute import GraphedCompute
from bpt.engine.replayed_compute import SETTLED_AFTER
from bpt.train.solver.solver import Solver
from tests.support.doubles.late_device import Capture, Work, capture_graph, late_device
from tests.support.small_solver import small_solver

ITERATIONS = SETTLED_AFTER + 8
NORMALISED = """
name: "normalised"
layer { name: "data" type: "DummyData" top: "x" top: "y"
        dummy_data_param { shape { dim: 8 dim: 3 dim: 6 dim: 6 } shape { dim: 8 }
                           data_filler { type: "gaussian" std: 1 } data_filler { type: "uniform" min: 0 max: 2.99 } } }
layer { name: "conv" type: "Convolution" bottom: "x" top: "conv"
        convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: "xavier" } } }
layer { name: "bn" type: "BatchNorm" bottom: "conv" top: "bn" }
layer { name: "scale" type: "Scale" bottom: "bn" top: "scale" scale_param { bias_term: true } }
layer { name: "relu" type: "ReLU" bottom: "scale" top: "scale" }
layer { name: "pool" type: "Pooling" bottom: "scale" top: "pool" pooling_param { kernel_size: 2 stride: 2 } }
layer { name: "ip" type: "InnerProduct" bottom: "pool" top: "ip"
        inner_product_param { num_output: 3 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "y" top: "loss" }
"""
DROPPED = NORMALISED.replace(
    'layer { name: "ip"', 'layer { name: "drop" type: "Dropout" bottom: "pool" top: "pool" }\nlayer { name: "ip"'
)


class Captures:
    """Captures passes, and counts how often each is replayed."""

    def __init__(self) -> None:
        self.replays: list[int] = []

    def __call__(self, work: Work) -> tuple[Sequence[Tensor], Callable[[], object]]:
        made, replay = capture_graph(work)
        place = len(self.replays)
        self.replays.append(0)

        def count_and_replay() -> None:
            self.replays[place] += 1
            replay()

        return made, count_and_replay


def trained(
    folder: Path, net: str, overrides: str = "", capture: Capture | None = None
) -> tuple[list[float], list[Tensor]]:
    """The losses of ITERATIONS, and all blobs behind them, statistics included; on a late device if it captures."""
    plan = small_solver(folder, "random_seed: 4 display: 0", overrides, net=net)
    losses = []
    with late_device(capture) if capture else nullcontext(), Solver(plan) as solver:
        for _ in range(ITERATIONS):
            losses.append(solver.runtime.iterate())
        return losses, [value.detach().clone() for value in solver.net.parameters()]


@pytest.mark.parametrize("overrides", ["", "iter_size: 2", "clip_gradients: 0.1", "type: 'Adam' momentum2: 0.9"])
def test_replayed_iterations_equal_plain_ones(overrides: str, tmp_path: Path) -> None:
    captures = Captures()
    losses, blobs = trained(tmp_path, NORMALISED, overrides)
    found, found_blobs = trained(tmp_path, NORMALISED, overrides, captures)
    assert found == losses
    assert len(set(losses)) == ITERATIONS  # each batch is another one
    assert all(map(torch.equal, found_blobs, blobs))
    passes = ITERATIONS * (2 if "iter_size" in overrides else 1)
    assert captures.replays == [passes - SETTLED_AFTER]  # the first is the one that is compared


def test_the_log_says_once_what_is_done(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "bpt"):
        trained(tmp_path, NORMALISED, capture=capture_graph)
    assert [line for line in caplog.messages if "graph" in line] == [
        "Forward and backward passes are replayed as one CUDA graph"
    ]


def test_layers_that_draw_are_never_captured(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    captures = Captures()
    with caplog.at_level(logging.INFO, "bpt"):
        found = trained(tmp_path, DROPPED, capture=captures)
    expected = trained(tmp_path, DROPPED)
    assert found[0] == expected[0]
    assert captures.replays == []
    assert 'no CUDA graph: layer "drop" (Dropout) may depend on more than its bottoms, such as the iteration' in (
        caplog.messages
    )


def test_another_loss_scale_or_memory_is_captured_anew(tmp_path: Path) -> None:
    captures, plan = Captures(), small_solver(tmp_path, "random_seed: 4 display: 0", net=NORMALISED)
    with late_device(captures), Solver(plan) as solver:
        for _ in range(SETTLED_AFTER + 2):
            solver.runtime.train()
        assert captures.replays == [2]
        weight = next(solver.net.parameters())
        weight.data = weight.data.clone()
        for _ in range(SETTLED_AFTER):
            solver.runtime.train()
        assert captures.replays == [2]
        solver.runtime.train()
        assert captures.replays == [2, 1]


@pytest.mark.parametrize("fault", ["raises", "differs"])
def test_a_capture_that_fails_leaves_plain_passes(fault: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def broken(work: Work) -> tuple[Sequence[Tensor], Callable[[], object]]:
        if fault == "raises":
            raise RuntimeError("operation not permitted when stream is capturing\nand more")
        made, _ = capture_graph(work)
        return made, lambda: None

    losses, blobs = trained(tmp_path, NORMALISED)
    with caplog.at_level(logging.WARNING, "bpt"):
        found, found_blobs = trained(tmp_path, NORMALISED, capture=broken)
    assert found == losses
    assert all(map(torch.equal, found_blobs, blobs))
    (line,) = [line for line in caplog.messages if "graph" in line]
    why = "operation not permitted when stream is capturing" if fault == "raises" else "it computes other numbers"
    assert f"capturing the pass failed: {why}" in line


WRONG = NORMALISED.replace('type: "uniform" min: 0 max: 2.99', 'type: "constant" value: 7')


@pytest.mark.parametrize("net", [WRONG, WRONG.replace("value: 7", "value: -2")])
def test_a_label_that_is_no_class_is_reported_at_the_next_display(net: str, tmp_path: Path) -> None:
    label = "7" if net is WRONG else "-2"
    plan = small_solver(tmp_path, "display: 0", net=net)
    with late_device(), Solver(plan) as solver:
        solver.runtime.train()
        with pytest.raises(DataError, match=f'layer "loss": label {label} in "y", since the last display'):
            solver.step(2)


def test_ignored_labels_are_no_fault(tmp_path: Path) -> None:
    net = WRONG.replace('top: "loss" }', 'top: "loss" loss_param { ignore_label: 7 } }')
    found, expected = trained(tmp_path, net, capture=capture_graph), trained(tmp_path, net)
    assert found[0] == expected[0]
    assert all(map(torch.equal, found[1], expected[1]))


@pytest.mark.gpu
def test_on_a_gpu(tmp_path: Path) -> None:
    """A graph of the device gives the losses of plain passes there."""
    from bpt.train.runtime.train_options import TrainOptions  # noqa: PLC0415

    plan = small_solver(tmp_path, "random_seed: 4 display: 0", net=NORMALISED)
    with Solver(plan, TrainOptions(torch.device("cuda", 0))) as solver:
        found = [solver.runtime.iterate() for _ in range(ITERATIONS)]
        compute = solver.runtime.nets.train.operator.compute
        assert isinstance(compute, GraphedCompute)
        assert compute._recorded is not None
    assert found == pytest.approx(trained(tmp_path, NORMALISED)[0], rel=1e-3)
