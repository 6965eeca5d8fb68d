"""Whole runs of the outer layer, with ranks as threads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from bpt.base.signals import SignalActions
from bpt.config.plan.resolve import read_plan
from bpt.config.proto import bpt_pb2 as pb
from bpt.system.comm.base import Communicator
from bpt.system.comm.serial import SerialCommunicator
from bpt.system.device import CPU
from bpt.train.outer import train
from bpt.train.solver.solver import RunOutcome, Solver
from tests.support.doubles.thread_ranks import run_ranks

Weights = dict[str, list[NDArray[np.float32]]]


UNWEIGHED = "weigh_by_accuracy: false"


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one thread, whatever other tests have set for threads that start later: sums depend on it."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def outer(
    ranks: int,
    parallel: str,
    *overrides: str,
    replay: str = "",
    resume: str = "",
    solver: str = "solver.prototxt",
    signals: SignalActions | None = None,
) -> RunOutcome:
    """Train on so many ranks; rank 0 serves, and computes too if it is alone."""

    def run(world: Communicator) -> RunOutcome:
        source = read_plan(
            solver, ["parallel_param { sync_batch_norm: false }", f"parallel_param {{ {parallel} }}", *overrides]
        )
        with one_thread():
            return train(source, world, CPU, signals, resume, replay)

    return run(SerialCommunicator()) if ranks == 1 else run_ranks(ranks, run)[0]


def alone(*overrides: str) -> None:
    """Train in one process, without an outer layer."""
    plan = read_plan("solver.prototxt", ["parallel_param { sync_batch_norm: false }", *overrides])
    with one_thread(), Solver(plan) as solver:
        solver.solve()


def weights(iteration: int = 9, prefix: str = "small") -> Weights:
    """What a run has left."""
    net = pb.NetParameter.FromString(Path(f"{prefix}_iter_{iteration}.caffemodel").read_bytes())
    return {layer.name: [np.array(blob.data, np.float32) for blob in layer.blobs] for layer in net.layer if layer.blobs}


def assert_equal(one: Weights, other: Weights, tolerance: float = 0.0) -> None:
    assert one.keys() == other.keys()
    for name, blobs in one.items():
        for mine, others in zip(blobs, other[name], strict=True):
            np.testing.assert_allclose(mine, others, rtol=tolerance, atol=tolerance, err_msg=name)
