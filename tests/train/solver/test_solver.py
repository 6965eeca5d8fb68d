"""The training loop: resuming continues the very curve, tests and snapshots come when they are due."""

from __future__ import annotations

import logging
import re
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from bpt.base.errors import PrototxtError
from bpt.caffe.core.operator import BlobOperator
from bpt.config.plan.resolve import read_plan
from bpt.train.runtime.train_options import TrainOptions
from bpt.train.solver.solver import Solver
from tests.support.paths import GOLDEN

NET = """
name: "small"
layer { name: "data" type: "Data" top: "data" top: "label" include { phase: TRAIN }
  transform_param { scale: 0.00390625 crop_size: 20 mirror: true }
  data_param { source: "lmdb" backend: LMDB batch_size: 5 shuffle: true } }
layer { name: "data" type: "Data" top: "data" top: "label" include { phase: TEST }
  transform_param { scale: 0.00390625 crop_size: 20 }
  data_param { source: "lmdb" backend: LMDB batch_size: 7 } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 4 kernel_size: 5 stride: 2 weight_filler { type: "xavier" } } }
layer { name: "bn" type: "BatchNorm" bottom: "conv" top: "conv" }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "drop" type: "Dropout" bottom: "conv" top: "conv" }
layer { name: "ip" type: "InnerProduct" bottom: "conv" top: "ip"
  inner_product_param { num_output: 10 weight_filler { type: "gaussian" std: 0.1 } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
layer { name: "accuracy" type: "Accuracy" bottom: "ip" bottom: "label" top: "accuracy" include { phase: TEST } }
"""
SOLVER = """
net: "net.prototxt" test_iter: 2 test_interval: 4 base_lr: 0.01 momentum: 0.9 lr_policy: "step" gamma: 0.5 stepsize: 3
max_iter: 12 display: 1 average_loss: 3 snapshot_prefix: "small" solver_mode: CPU
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the net, its solver and its data, as the current one."""
    shutil.copytree(GOLDEN / "lmdb" / "color_lmdb", tmp_path / "lmdb")
    (tmp_path / "net.prototxt").write_text(NET)
    (tmp_path / "solver.prototxt").write_text(SOLVER)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def train(*overrides: str, resume: str = "") -> tuple[list[str], dict[str, np.ndarray]]:
    """Run ``solve``; the lines about iterations without their times, and the weights."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("bpt")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        with Solver(read_plan("solver.prototxt", overrides), TrainOptions(resume=resume)) as solver:
            solver.solve()
            weights = {f"{n}/{i}": v.detach().numpy().copy() for (n, i), v in solver.net.values_by_name().items()}
    finally:
        logger.removeHandler(handler)
    kept = [line for line in lines if line.startswith(("Iteration", "    T"))]
    return [re.sub(r" \(.* iters\)", "", line) for line in kept], weights


@pytest.mark.parametrize("overrides", [(), ("type: 'Adam' iter_size: 2 random_seed: 4",)])
def test_a_resumed_run_continues_the_very_curve(overrides: tuple[str, ...]) -> None:
    straight, expected = train("snapshot: 6", *overrides)
    resumed, weights = train(*overrides, resume="small_iter_6.solverstate")
    start = next(i for i, line in enumerate(straight) if line.startswith("Iteration 6"))
    assert resumed == straight[start:]
    for name, values in expected.items():
        np.testing.assert_array_equal(weights[name], values, err_msg=name)


def test_without_a_seed_runs_differ() -> None:
    assert train()[0] != train()[0]


def test_auto_takes_the_newest_snapshot() -> None:
    train("snapshot: 4 max_iter: 8")
    resumed, _ = train("max_iter: 9", resume="auto")
    assert resumed[0].startswith("Iteration 8")


def test_auto_starts_anew_where_there_is_none() -> None:
    lines, _ = train("max_iter: 1 test_initialization: false", resume="auto")
    assert lines[0].startswith("Iteration 0, loss")


def test_samples_that_a_test_takes_again_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """3 × 7 = 21 of 24 images, then 4 × 7 = 28, in all tests of a run."""
    for batches, says in (
        (3, []),
        (4, ["test net (#0) takes 4 × 7 = 28 samples, lmdb has 24: some count up to 2 times"]),
    ):
        caplog.clear()
        train(f"max_iter: 4 test_interval: 2 test_iter: {batches}")
        told = [record.getMessage() for record in caplog.records if "samples" in record.getMessage()]
        assert told == [f"{text}; set test_iter and batch_size so that their product is 24" for text in says]


def test_when_things_are_due() -> None:
    lines, _ = train("max_iter: 4 test_interval: 2 display: 2 test_initialization: false")
    assert [line.split(" = ")[0] for line in lines] == [
        "Iteration 0, loss",
        "    Train net output #0: loss",
        "Iteration 0, lr",
        "Iteration 2, Testing net (#0)",
        "    Test net output #0: accuracy",
        "    Test net output #1: loss",
        "Iteration 2, loss",
        "    Train net output #0: loss",
        "Iteration 2, lr",
        "Iteration 4, loss",
        "Iteration 4, Testing net (#0)",
        "    Test net output #0: accuracy",
        "    Test net output #1: loss",
    ]
    assert sorted(path.name for path in Path().glob("small_iter*")) == [
        "small_iter_4.caffemodel",
        "small_iter_4.solverstate",
    ]


def test_nan_is_told_and_training_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("bpt").propagate = True
    with caplog.at_level(logging.WARNING, "bpt"):
        train("base_lr: 3e38 lr_policy: 'fixed' max_iter: 6 on_nan: GO_ON")
    told = [record.getMessage() for record in caplog.records if "is not finite" in record.getMessage()]
    assert len(told) == 1


def test_nets_that_are_looked_at_learn_the_same() -> None:
    results = []
    for observer in (None, BlobOperator):
        with Solver(read_plan("solver.prototxt", ["random_seed: 3"]), TrainOptions(observer=observer)) as solver:
            solver.step(5)
            results.append({key: value.detach().clone() for key, value in solver.net.values_by_name().items()})
    for key, value in results[0].items():
        torch.testing.assert_close(results[1][key], value, rtol=1e-5, atol=1e-6)


def test_the_threads_that_read_ahead_end_with_the_run() -> None:
    others = threading.enumerate()  # other tests may have left some behind

    def readers() -> list[str]:
        return [thread.name for thread in threading.enumerate() if "prefetch" in thread.name and thread not in others]

    with Solver(read_plan("solver.prototxt")) as solver:
        solver.step(5)
        assert len(readers()) == 2  # of the training net and of the test net
    assert readers() == []


def test_a_mistake_about_tests_shows_before_anything_is_built(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "bpt"), pytest.raises(PrototxtError, match="test_interval is 0"):
        Solver(read_plan("solver.prototxt", ["test_interval: 0"]))
    assert "Creating" not in caplog.text


def test_a_test_net_has_the_weights_of_the_net_that_is_trained() -> None:
    with Solver(read_plan("solver.prototxt")) as solver:
        trained, tested = solver.net.values_by_name(), solver.runtime.nets.tests[0][1].net.values_by_name()
        assert trained.keys() == tested.keys()
        assert all(tested[key] is value for key, value in trained.items())


@pytest.mark.gpu
@pytest.mark.parametrize("engine", ["CONTIGUOUS", "CHANNELS_LAST"])
def test_recorded_curve(engine: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = GOLDEN / "snapshots" / "SGD_multistep"
    recorded = np.load(folder / "run.npz")
    monkeypatch.chdir(folder)
    overrides = [f'engine: {engine} snapshot: 0 snapshot_after_train: false snapshot_prefix: "{tmp_path}/snap"']
    with Solver(read_plan("solver.prototxt", overrides), TrainOptions(torch.device("cuda", 0))) as solver:
        for (layer, blob), value in solver.net.values_by_name().items():
            with torch.no_grad():
                value.copy_(torch.from_numpy(recorded[f"init/{layer}/{blob}"]))
        losses = []
        for _ in range(10):
            solver.step(1)
            losses.append(solver.runtime.nets.train[1].loss().item())
    np.testing.assert_allclose(losses, recorded["loss"][:10], rtol=1e-3)
