"""A rank of ``scripts/bench balance``: trains with UNIFORM and with STATIC in turn, and rank 0 writes the times."""

from __future__ import annotations

import gc
import json
import math
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from bpt.allocator import keep_freed_memory
from bpt.comm import failure
from bpt.comm.base import Communicator
from bpt.comm.cores import share_cores
from bpt.events.totals import Totals, phase_seconds, seconds_computing
from bpt.layers.base import batch_of
from bpt.proto.sources import read_solver
from bpt.solver.solver import Solver
from scripts.benches.balance import SIDES

WARM_UP = 3  # iterations of each side before the first turn
FEWEST = 3  # iterations of a turn


def train(solver: Solver, world: Communicator, iterations: int) -> dict[str, Any]:
    """Train so many iterations; the time of one, and what each rank did in it."""
    world.Barrier()
    totals = solver.runtime.events.add(Totals())
    start = time.perf_counter()
    solver.step(iterations)
    world.Barrier()  # until the last rank has done its update, too
    seconds = (time.perf_counter() - start) / iterations
    solver.runtime.events.remove(totals)
    taken = totals.take()
    phases = phase_seconds(taken)
    return {
        "seconds": seconds,
        "computing": world.allgather(seconds_computing(taken) / iterations),
        "exchange": world.allgather(phases["exchange"] / iterations),
    }


def turns(path: str, rounds: int, seconds: float, world: Communicator) -> dict[str, Any]:
    """The sides' turns; see Outcome."""
    torch.set_num_threads(share_cores(world))  # this and the next as the command line does
    gc.freeze()
    sides: dict[str, Any] = {}
    solvers: dict[str, Solver] = {}
    iterations: dict[str, int] = {}
    for side in SIDES:
        source = read_solver(path, [f"parallel_param {{ balance: {side} }}"])
        solvers[side] = solver = Solver(source, world=world)
        solver.step(1)
        slowest = max(world.allgather(train(solver, world, WARM_UP)["seconds"]))
        iterations[side] = max(FEWEST, math.ceil(seconds / slowest))
        shares = solver.runtime.parallel.shares(batch_of(solver.net.graph))
        sides[side] = {"shares": [share.count for share in shares], "turns": []}
    for turn in range(rounds):
        for side in SIDES if turn % 2 == 0 else SIDES[::-1]:
            solvers[side].step(1)  # does not count: data were read ahead meanwhile, caches are the other side's
            sides[side]["turns"].append(train(solvers[side], world, iterations[side]))
    return sides


def main() -> int:
    path, rounds, seconds, answer = sys.argv[1:]
    keep_freed_memory()  # as the command line does

    def command(world: Communicator) -> None:
        sides = turns(path, int(rounds), float(seconds), world)
        if world.rank == 0:
            Path(answer).write_text(json.dumps(sides, indent=1))

    return failure.run(command)


if __name__ == "__main__":
    sys.exit(main())
