"""A solver trains and tests with the inner layer as without it: real data layers, dropout, tests, many iterations."""

from __future__ import annotations

import logging
import re
import shutil
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor

from bpt.config.plan.resolve import read_plan
from bpt.config.plan.run_plan import RunPlan
from bpt.config.proto import bpt_pb2 as pb
from bpt.engine.inner_choice import InnerChoice
from bpt.engine.measured_choice import WARM_UP
from bpt.engine.operator import Operator
from bpt.nn.net import Net
from bpt.train.runtime.train_options import TrainOptions
from bpt.train.solver.solver import Solver
from tests.support.paths import GOLDEN
from tests.support.task_dag_nets import assert_same, convolution, dag_operator, fully_connected, layer, tasks_of

DATA = """layer { name: "data" type: "Data" top: "data" top: "label" transform_param { scale: 0.00390625 crop_size: 20 }
    data_param { source: "lmdb" backend: LMDB batch_size: 6 } }"""
NET = (
    DATA
    + convolution("conv", "data", "num_output: 4 kernel_size: 5 stride: 2")
    + layer("Pooling", "conv", "pool", "pooling_param { kernel_size: 2 stride: 2 }")
    + fully_connected("wide", "pool", 60)
    + layer("ReLU", "wide", "wide")
    + layer("Dropout", "wide", "wide")
    + fully_connected("score", "wide", 10)
    + layer("SoftmaxWithLoss", "score label", "loss")
    + layer("Accuracy", "score label", "accuracy", "include { phase: TEST }")
)
SOLVER = """net: "net.prototxt" test_iter: 2 test_interval: 3 base_lr: 0.05 momentum: 0.9 weight_decay: 0.001
    lr_policy: "fixed" iter_size: 2 max_iter: 6 random_seed: 4 snapshot_prefix: "s" engine: CONTIGUOUS"""
AUTO = "parallel_param { inner_param { engine: AUTO } }"


def weights_of(solver: Solver) -> dict[str, Tensor]:
    return {name: value.detach() for name, value in solver.net.named_parameters()}


def trained(plan: RunPlan, threads: int) -> dict[str, Tensor]:
    """Weights after training, and what the last test gave; by SegmentOperator if ``threads`` is 0."""

    def make(net: Net, device: torch.device) -> Operator:
        if threads:
            return dag_operator(net, device=device, threads=threads)
        return Operator(net, device=device)

    with Solver(plan, TrainOptions(make_operator=make)) as solver:
        solver.solve()
        scores = {f"test {edge}": value for edge, value in solver.runtime.nets.tests[0].operator.values.items()}
        assert bool(getattr(solver.runtime.nets.train.operator.compute, "timelines", {})) == (threads > 0)
        return weights_of(solver) | scores


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(GOLDEN / "lmdb" / "color_lmdb", tmp_path / "lmdb")
    (tmp_path / "net.prototxt").write_text(NET.replace('"lmdb"', f'"{tmp_path}/lmdb"'))
    (tmp_path / "solver.prototxt").write_text(SOLVER.replace('"s"', f'"{tmp_path}/s"'))
    return tmp_path


def plan_of(folder: Path, *overrides: str) -> RunPlan:
    return read_plan(str(folder / "solver.prototxt"), overrides)


def test_six_iterations(folder: Path) -> None:
    run = partial(trained, plan_of(folder))
    assert_same(run(2), run(0), 1e-5)


def by_tasks(net: Net, device: torch.device) -> Operator:
    return dag_operator(net, device=device)


def test_auto_trains_while_it_tries(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Train and test nets go on with what has been faster; the weights are those of the library."""
    iterations = 2 * (WARM_UP + InnerChoice.trials) + 2
    auto = Solver(plan_of(folder, AUTO, f"max_iter: {iterations}"), TrainOptions(make_operator=by_tasks))
    with caplog.at_level(logging.INFO, "bpt"), auto as run:
        run.solve()
        weights = weights_of(run)
        used = {tasks_of(built.operator).inner for built in (run.runtime.nets.train, *run.runtime.nets.tests)}
    told = [message for message in caplog.messages if message.startswith("Inner: ")]
    assert [re.sub(r"[\d.e+]+ ms", "N ms", line) for line in told] in (
        [f"Inner: {name} (LIBRARY N ms, TASK_DAG N ms an iteration)"] for name in ("LIBRARY", "TASK_DAG")
    )
    assert [pb.InnerParameter.Engine.Name(engine) for engine in used] == [told[0].split()[1]]
    with Solver(plan_of(folder, f"max_iter: {iterations}")) as expected:
        expected.solve()
        assert_same(weights, weights_of(expected), 1e-5)


@pytest.mark.parametrize("engine", ["LIBRARY", "TASK_DAG"])
def test_a_snapshot_settles_it_and_the_resumed_run_goes_on_alike(
    folder: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the last bit."""
    value = pb.InnerParameter.Engine.Value(engine)
    monkeypatch.setattr(InnerChoice, "_best", lambda choice: value)
    plan = plan_of(folder, AUTO, "snapshot: 3")
    with Solver(plan, TrainOptions(make_operator=by_tasks)) as straight:
        straight.solve()
        assert tasks_of(straight.runtime.nets.train.operator).inner == value
        theirs = weights_of(straight)
    with Solver(plan, TrainOptions(make_operator=by_tasks, resume=f"{folder}/s_iter_3.solverstate")) as resumed:
        assert tasks_of(resumed.runtime.nets.train.operator).inner == value
        resumed.solve()
        ours = weights_of(resumed)
    assert all(torch.equal(value, theirs[name]) for name, value in ours.items())
