"""Run by mpirun: trains a fully connected layer alone, and prints the bytes of memory that it took at its peak."""

from __future__ import annotations

import gc
import resource
import sys
from pathlib import Path

import torch

from bpt.config.plan.resolve import read_plan
from bpt.system.comm.launch import world
from bpt.train.solver.solver import Solver

SOLVER = """
net_param {{
  layer {{
    name: "data" type: "DummyData" top: "pool5" top: "target"
    dummy_data_param {{
      shape {{ dim: 8 dim: 512 dim: {side} dim: {side} }} shape {{ dim: 8 dim: 4096 }}
      data_filler {{ type: "uniform" }} data_filler {{ type: "constant" }}
    }}
  }}
  layer {{
    name: "fc6" type: "InnerProduct" bottom: "pool5" top: "fc6"
    inner_product_param {{ num_output: 4096 weight_filler {{ type: "gaussian" std: 0.005 }} }}
  }}
  layer {{ name: "loss" type: "EuclideanLoss" bottom: "fc6" bottom: "target" top: "loss" }}
}}
base_lr: 1e-6 lr_policy: "fixed" momentum: 0.9 weight_decay: 0.0005 max_iter: 3 random_seed: 1
engine: CONTIGUOUS snapshot_after_train: false
"""


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    folder, side, parallel = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    torch.set_num_threads(1)
    comm = world()
    path = folder / f"solver{comm.size}_{comm.rank}.prototxt"
    path.write_text(SOLVER.format(side=side))
    source = read_plan(path, [f"parallel_param {{ {parallel} }}"])
    (torch.randn(8, 8, requires_grad=True) @ torch.randn(8, 8)).backward(torch.ones(8, 8))  # the library's own memory
    gc.collect()
    before = peak()
    with Solver(source, world=comm) as solver:
        solver.solve()
    everybody = comm.allgather(peak() - before)
    if comm.rank == 0:
        print(*everybody)


if __name__ == "__main__":
    main()
