"""A rank of ``scripts/bench hybrid``: trains pipelines that differ in schedule and placement, in turn."""

from __future__ import annotations

import time
from typing import Any

from bpt.config.proto.sources import read_solver
from bpt.system.comm.base import Communicator
from bpt.system.events.totals import Totals, phase_seconds, total_busy_seconds
from bpt.train.solver.solver import Solver
from scripts.benches.harness.turns import in_turn

WARM_UP = 2  # iterations of each way before its first turn
MANY = 5  # times as many iterations of DELAYED: the pipeline fills anew in each turn


def train(solver: Solver, world: Communicator, iterations: int) -> dict[str, Any]:
    """Seconds of each iteration, and what each rank computes in one in the mean.

    Under DELAYED, where no rank waits for the others to end an iteration, each counts with the mean.
    """
    together = 1
    if solver.plan.parallel_param.is_delayed:
        iterations *= MANY
        together = iterations
    world.Barrier()
    totals = solver.runtime.events.add(Totals())
    seconds: list[float] = []
    for _ in range(0, iterations, together):
        start = time.perf_counter()
        solver.step(together)
        world.Barrier()  # until the last rank has done its update, too
        seconds += [(time.perf_counter() - start) / together] * together
    solver.runtime.events.remove(totals)
    taken = totals.take()
    phases = phase_seconds(taken)
    return {
        "seconds": seconds,
        "computing": world.allgather(total_busy_seconds(taken) / iterations),
        "waiting": world.allgather((phases["pipeline"] + phases["exchange"]) / iterations),
    }


def work(order: dict[str, Any], world: Communicator) -> dict[str, Any]:
    """A rank: way → the stage of each layer, and its turns; see results.Seen."""
    solvers: dict[str, Solver] = {}
    done: dict[str, Any] = {}
    for way, fields in order["ways"].items():
        solvers[way] = Solver(read_solver(order["solver"], fields), world=world)
        staging = solvers[way].runtime.parallel.staging
        assert staging is not None
        done[way] = {"stages": staging.of_layers, "turns": []}
        solvers[way].step(WARM_UP)
    for way in in_turn(list(solvers), order["rounds"]):
        solvers[way].step(1)  # does not count: caches are the other way's
        done[way]["turns"].append(train(solvers[way], world, order["iterations"]))
    return done
