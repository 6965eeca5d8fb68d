"""A rank of a job of ``scripts/bench mpifc``: times a layer in many ways."""

from __future__ import annotations

import time
from typing import Any

from bpt.config.proto.merge import apply_set
from bpt.config.proto.sources import SolverSource
from bpt.config.proto.upgrade import upgrade_solver
from bpt.engine import instructions as do
from bpt.engine.instructions import InstructionStep
from bpt.system.comm.base import Communicator
from bpt.system.events.totals import Key, Totals, phase_seconds
from bpt.train.solver.solver import Solver
from scripts.benches.harness.turns import in_turn
from scripts.benches.mpifc.ways import Way, layer_solver

FLOAT = 4  # bytes of an element
WARM_UP = 2  # iterations of a turn that do not count
Laps = list[dict[str, float]]


def work(order: dict[str, Any], world: Communicator) -> list[dict[str, Any]]:
    """A rank's life: times every way in turn, with every size of the layer.

    Returns:
        For each way and size: "laps", seconds of each phase of each iteration, on the rank that waits for all; and
        "elements", that all ranks have sent in an iteration, forward and backward.
    """
    cases = [(Way(**way), outputs) for outputs in order["outputs"] for way in order["ways"]]
    solvers = [layer_runner(way, order["inputs"], outputs, world) for way, outputs in cases]
    found: list[dict[str, Any]] = [
        {"way": vars(way), "outputs": outputs, "laps": [], "elements": []} for way, outputs in cases
    ]
    for number in in_turn(range(len(cases)), order["rounds"]):
        laps, sent = turn(solvers[number], world, order["iterations"])
        found[number]["laps"] += laps
        found[number]["elements"] = [sum(direction) / FLOAT for direction in zip(*world.allgather(sent), strict=True)]
    for solver in solvers:
        solver.close()
    return found


def layer_runner(way: Way, inputs: int, outputs: int, world: Communicator) -> Solver:
    """Trains the layer."""
    source = SolverSource(layer_solver(way, inputs, outputs), "layer", {})
    apply_set(source.param, [way.parallel])
    upgrade_solver(source.param, {}, "layer")
    return Solver(source, world=world)


def turn(solver: Solver, world: Communicator, iterations: int) -> tuple[Laps, list[float]]:
    """Train; phases of each iteration on the slowest rank, and the bytes that this one sent forward and backward."""
    solver.step(WARM_UP)
    laps: Laps = []
    sent = [0.0, 0.0]
    with solver.runtime.events.into(Totals()) as totals:
        for _ in range(iterations):
            start = time.perf_counter()
            solver.step(1)
            seconds = time.perf_counter() - start
            taken = totals.take()
            laps.append({"total": seconds} | phase_seconds(taken))
            for key, traffic in taken.items():
                if key.method and _of_pass(key) is not None:
                    sent[_of_pass(key) or 0] += traffic.sent / iterations
    ranks = world.allgather(laps)
    return [max(of_all, key=lambda lap: lap["total"]) for of_all in zip(*ranks, strict=True)], sent


def _of_pass(key: Key) -> int | None:
    """0 forward, 1 backward."""
    if isinstance(key.step, InstructionStep) and key.step.kind in (do.Forward, do.Backward):
        return int(key.step.kind is do.Backward)
    return None
