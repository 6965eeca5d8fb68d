"""A rank of ``scripts/bench hybrid --memory``: trains some iterations; the first prints each rank's peak in bytes."""

from __future__ import annotations

import gc
import json
import resource
import sys

import torch

from bpt.comm import failure
from bpt.comm.base import Communicator
from bpt.commands.training import keep_memory
from bpt.plan.resolve import resolve
from bpt.proto.sources import read_solver
from bpt.solver.solver import Solver


def peak() -> int:
    """Bytes that this process has held at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> int:
    solver, overrides, iterations = sys.argv[1:]
    plan = resolve(read_solver(solver, json.loads(overrides)))
    keep_memory(plan.parallel_param)  # as the command line does

    def command(world: Communicator) -> None:
        torch.set_num_threads(1)
        product = torch.randn(8, 8, requires_grad=True) @ torch.randn(8, 8)
        torch.autograd.backward(product, torch.ones(8, 8))  # what the library itself needs
        gc.collect()
        before = peak()
        with Solver(plan, world=world) as trained:
            trained.step(int(iterations))
        peaks = world.allgather((peak() - before, before))
        if world.rank == 0:
            print(json.dumps(peaks))

    return failure.run(command)


if __name__ == "__main__":
    sys.exit(main())
