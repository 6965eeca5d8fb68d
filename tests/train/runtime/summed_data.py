"""A net whose gradients are sums of its data, worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from bpt.config.plan.resolve import read_plan
from bpt.system.comm.base import Communicator
from bpt.train.solver.solver import Solver
from tests.support.doubles.thread_ranks import run_ranks
from tests.support.hdf5_files import write

# One weight w = 1 without a bias: the loss of a sample is (w x - y)² / 2, and its gradient (w x - y) x.
NET = """
layer {{ name: "data" type: "HDF5Data" top: "data" top: "label"
  hdf5_data_param {{ source: "list.txt" batch_size: {batch} {more} }} }}
layer {{ name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
  inner_product_param {{ num_output: 1 bias_term: false weight_filler {{ type: "constant" value: 1 }} }} }}
layer {{ name: "loss" type: "EuclideanLoss" bottom: "ip" bottom: "label" top: "loss" }}
"""


SOLVER = """
net: "net.prototxt" base_lr: 0.125 lr_policy: "fixed" max_iter: 100 random_seed: 3 snapshot_after_train: false
engine: CONTIGUOUS
"""


def set_up(folder: Path, data: list[float], batch: int, labels: list[float] | None = None, more: str = "") -> None:
    x = np.array(data).reshape(-1, 1)
    write(folder, {"data": x, "label": np.zeros_like(x) if labels is None else np.array(labels).reshape(-1, 1)})
    (folder / "list.txt").write_text(f"{folder}/0.h5\n")
    (folder / "net.prototxt").write_text(NET.format(batch=batch, more=more))


def steps(
    ranks: int, iterations: int, *overrides: str, look: Callable[[Solver], object] = lambda solver: None
) -> list[Any]:
    def run(comm: Communicator) -> object:
        with Solver(read_plan("solver.prototxt", overrides), world=comm) as solver:
            solver.step(iterations)
            return look(solver)

    return run_ranks(ranks, run)
