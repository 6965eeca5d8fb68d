"""A solver trains and tests with the inner layer as without it: real data layers, dropout, tests, many iterations."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from bpt.net import Net
from bpt.operators.local import LocalOperator
from bpt.operators.task_dag import TaskDagOperator
from bpt.proto.solver import SolverSource, read_solver
from bpt.solvers.solver import Solver
from tests.golden_cases import GOLDEN
from tests.operators.task_dag.nets import TINY, assert_same, convolution, fully_connected, layer

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


def trained(source: SolverSource, threads: int) -> dict[str, Tensor]:
    """Weights after training, and what the last test gave; by LocalOperator if ``threads`` is 0."""

    def make(net: Net, device: torch.device) -> LocalOperator:
        if threads:
            return TaskDagOperator(net, device=device, threads=threads, grain=TINY)
        return LocalOperator(net, device=device)

    solver = Solver(source, make_operator=make)
    solver.solve()
    scores = {f"test {edge}": value for edge, value in solver.tests[0].operator.values.items()}
    weights = {name: value.detach() for name, value in solver.net.named_parameters()}
    assert bool(getattr(solver.train.operator, "timelines", {})) == (threads > 0)
    return weights | scores


def test_six_iterations(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / "lmdb" / "color_lmdb", tmp_path / "lmdb")
    (tmp_path / "net.prototxt").write_text(NET.replace('"lmdb"', f'"{tmp_path}/lmdb"'))
    (tmp_path / "solver.prototxt").write_text(SOLVER.replace('"s"', f'"{tmp_path}/s"'))
    run = partial(trained, read_solver(str(tmp_path / "solver.prototxt")))
    assert_same(run(2), run(0), 1e-5)
