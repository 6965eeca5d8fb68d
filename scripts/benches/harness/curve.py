"""Accuracy against time: a rank of a job that trains a network, and tests it now and then; see launch.py."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.sources import read_net, read_solver
from bpt.config.proto.text import to_text
from bpt.system.comm.base import Communicator
from bpt.train.solver.solver import Solver
from scripts.benches.harness.launch import PROTOTXT, run_worker
from scripts.benches.harness.nets import read_from

Point = tuple[int, float, float]  # iteration, seconds of training so far, accuracy
POINTS = 10  # of a curve, and the start


def write_solver(
    name: str, overrides: Sequence[str], data: Path, batch: int, tests: int, path: Path, passes: int = 1,
    fully_connected: str = "InnerProduct", **fields: Any,
) -> None:  # fmt: skip
    """The solver of the network ``name`` of ``prototxt/``, which tests when it is told to, and writes nothing.

    Args:
        overrides: texts that are laid over it.
        data: has train_lmdb and test_lmdb.
        batch: samples of a pass.
        tests: images to test on.
        path: where to write it.
        passes: of an iteration.
        fully_connected: the type of its InnerProduct layers.
        fields: of the solver; they have the last word.
    """
    net = read_net(PROTOTXT / name / "train_val.prototxt").param
    for layer in net.layer:
        if layer.type == "InnerProduct":
            layer.type = fully_connected
        if layer.type != "Data":
            continue
        training = any(rule.phase == pb.TRAIN for rule in layer.include)
        read_from(layer, *((data / "train_lmdb", batch) if training else (data / "test_lmdb", tests)))
    param = read_solver(PROTOTXT / name / "solver.prototxt", overrides).param
    for field in ("net", "test_iter", "test_interval", "snapshot", "display"):
        param.ClearField(field)
    param.net_param.CopyFrom(net)
    param.test_iter.append(1)
    param.test_interval, param.test_initialization = 10**6, False  # the bench says when
    param.iter_size, param.random_seed, param.max_iter, param.snapshot_after_train = passes, 1, 10**6, False
    param.engine = pb.SolverParameter.CONTIGUOUS
    for field, value in fields.items():
        setattr(param, field, value)
    path.write_text(to_text(param))


def train(solver: Path, iterations: int, ranks: int, folder: Path) -> list[Point]:
    """Train on so many ranks of one thread.

    Raises:
        JobError: it has failed.
    """
    return points_of(run_worker("harness.curve", order_of(solver, iterations), folder, ranks, threads=1))


def order_of(solver: Path, iterations: int) -> dict[str, Any]:
    """What ranks are told; see ``work``."""
    return {"solver": str(solver), "iterations": iterations, "every": max(1, iterations // POINTS)}


def points_of(answer: Any) -> list[Point]:
    """What ranks have answered."""
    return [(int(iteration), float(seconds), float(accuracy)) for iteration, seconds, accuracy in answer]


def work(order: dict[str, Any], world: Communicator) -> list[Point]:
    """A rank's life: the points of the curve."""
    solver = Solver(read_solver(order["solver"]), world=world)
    points, seconds = [], 0.0
    for iteration in range(0, order["iterations"] + 1, order["every"]):
        if iteration:
            world.Barrier()
            start = time.perf_counter()
            solver.step(order["every"])
            world.Barrier()
            seconds += time.perf_counter() - start
        with solver.runtime.testing():
            scores = solver.test(0)
        assert scores is not None
        accuracy = scores.outputs.get("accuracy", torch.zeros(()))  # slaves have no outputs
        points.append((iteration, seconds, float(accuracy)))
    solver.close()
    return points


def accuracy_of(solver: Solver, world: Communicator, output: str) -> float:
    """Of the first test net. A collective call."""
    with solver.runtime.testing():
        scores = solver.test(0)
    own = float(scores.outputs[output].mean()) if scores and output in scores.outputs else None
    found = [accuracy for accuracy in world.allgather(own) if accuracy is not None]
    assert found, f"the test net has no output {output}"
    return float(found[0])
