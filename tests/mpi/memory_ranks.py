"""Run by mpirun: trains a solver, and prints the bytes of memory that each rank took at its peak.

``memory_ranks SOLVER PARALLEL [--keep]``; with ``--keep`` freed memory stays with the process, as on the command line.
"""

from __future__ import annotations

import gc
import resource
import sys

import torch

from bpt.apps.commands.training import keep_memory
from bpt.config.plan.resolve import read_plan
from bpt.system.comm.launch import world
from bpt.train.solver.solver import Solver


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    path, parallel, *options = sys.argv[1:]
    torch.set_num_threads(1)
    comm = world()
    source = read_plan(path, [f"parallel_param {{ {parallel} }}"])
    if "--keep" in options:
        keep_memory(source.parallel_param)
    # The library's own memory.
    weights = torch.randn(1, 1, 3, 3, requires_grad=True)
    torch.conv2d(torch.randn(1, 1, 8, 8), weights).backward(torch.ones(1, 1, 6, 6))
    (torch.randn(8, 8, requires_grad=True) @ torch.randn(8, 8)).backward(torch.ones(8, 8))
    gc.collect()
    before = peak()
    with Solver(source, world=comm) as solver:
        solver.solve()
    everybody = comm.allgather(peak() - before)
    if comm.rank == 0:
        print(*everybody)


if __name__ == "__main__":
    main()
