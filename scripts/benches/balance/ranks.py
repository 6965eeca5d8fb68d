"""A rank of ``scripts/bench balance``: measures the speeds, then trains in turn with equal and with balanced shares."""

from __future__ import annotations

import math
import time
from typing import Any

from bpt.config.plan.resolve import read_plan
from bpt.config.proto.sources import read_solver
from bpt.nn.layers.base import batch_of
from bpt.perf.speeds.profiling import profile
from bpt.perf.speeds.survey import SurveyLimits
from bpt.system.comm.base import Communicator
from bpt.system.device import CPU
from bpt.system.events.totals import Totals, phase_seconds, total_busy_seconds
from bpt.train.solver.solver import Solver
from scripts.benches.balance.results import SIDES
from scripts.benches.harness.turns import in_turn

WARM_UP = 3  # iterations of each side before the first turn; 1 with --quick
FEWEST = 3  # iterations of a turn; 1 with --quick
ROUGH = SurveyLimits(precision=0.1, run=0.05, repeats=3, seconds=0.4)


def work(order: dict[str, Any], world: Communicator) -> list[dict[str, Any]]:
    """Of each solver each side's shares and turns; see Outcome. The first one has the largest batch."""
    limits = ROUGH if order["rough"] else SurveyLimits()
    profile(read_plan(order["solvers"][0]), CPU, world, order["profile"], limits)
    paths = order["solvers"] if order["rounds"] else []  # or else the profile was all
    return [compete(path, order["rounds"], order["seconds"], world, order["rough"]) for path in paths]


def compete(path: str, rounds: int, seconds: float, world: Communicator, rough: bool = False) -> dict[str, Any]:
    """Both sides in turn, so many rounds, each turn of so many seconds at least."""
    warm_up, fewest = (1, 1) if rough else (WARM_UP, FEWEST)
    sides: dict[str, Any] = {}
    solvers: dict[str, Solver] = {}
    iterations: dict[str, int] = {}
    for side in SIDES:
        source = read_solver(path, [f"parallel_param {{ balance: {side} }}"])
        solvers[side] = solver = Solver(source, world=world)
        solver.step(1)
        slowest = max(world.allgather(train(solver, world, warm_up)["seconds"]))
        iterations[side] = max(fewest, math.ceil(seconds / slowest))
        shares = solver.runtime.parallel.batches.shares(batch_of(solver.net.graph))
        sides[side] = {"shares": [share.count for share in shares], "turns": []}
    for side in in_turn(SIDES, rounds):
        solvers[side].step(1)  # does not count: data were read ahead meanwhile, caches are the other side's
        sides[side]["turns"].append(train(solvers[side], world, iterations[side]))
    for solver in solvers.values():
        solver.close()
    return sides


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
        "computing": world.allgather(total_busy_seconds(taken) / iterations),
        "exchange": world.allgather(phases["exchange"] / iterations),
    }
