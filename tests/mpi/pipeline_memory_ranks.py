"""Run by mpirun: trains VGG-16 on small images, and prints the bytes of memory that each rank took at its peak."""

from __future__ import annotations

import gc
import re
import resource
import sys
from pathlib import Path

import torch

from bpt.apps.commands.training import keep_memory
from bpt.config.plan.resolve import read_plan
from bpt.system.comm.launch import world
from bpt.train.solver.solver import Solver

NET = Path(__file__).parents[2] / "prototxt" / "vgg16" / "train_val.prototxt"
DATA = """layer {{ name: "data" type: "DummyData" top: "data" top: "label"
  dummy_data_param {{ shape {{ dim: {batch} dim: 3 dim: {side} dim: {side} }} shape {{ dim: {batch} }}
    data_filler {{ type: "uniform" max: 100 }} data_filler {{ type: "constant" value: 3 }} }} }}
"""
SOLVER = """
net: "{net}" base_lr: 1e-6 lr_policy: "fixed" momentum: 0.9 weight_decay: 0.0005 max_iter: 2 random_seed: 1
engine: CONTIGUOUS snapshot_after_train: false
"""


def write_net(path: Path, batch: int, side: int) -> None:
    """VGG-16's training net, on made-up images."""
    text = NET.read_text()
    text = re.sub(r'layer \{\n  name: "data".*?\n\}\n', "", text, flags=re.DOTALL)
    path.write_text(text.replace('name: "VGG_ILSVRC_16_layers"\n', DATA.format(batch=batch, side=side)))


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    folder, batch, side, parallel = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    torch.set_num_threads(1)
    comm = world()
    net = folder / f"net{comm.size}_{comm.rank}.prototxt"
    write_net(net, batch, side)
    path = folder / f"solver{comm.size}_{comm.rank}.prototxt"
    path.write_text(SOLVER.format(net=net))
    source = read_plan(path, [f"parallel_param {{ {parallel} }}"])
    keep_memory(source.parallel_param)  # as the command line does
    weights = torch.randn(1, 1, 3, 3, requires_grad=True)
    torch.conv2d(torch.randn(1, 1, 8, 8), weights).backward(torch.ones(1, 1, 6, 6))  # the library's own memory
    gc.collect()
    before = peak()
    with Solver(source, world=comm) as solver:
        solver.solve()
    everybody = comm.allgather(peak() - before)
    if comm.rank == 0:
        print(*everybody)


if __name__ == "__main__":
    main()
