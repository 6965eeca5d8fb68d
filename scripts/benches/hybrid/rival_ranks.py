"""A rank of ``scripts/bench hybrid --rivals``: trains by bpt in one of the ways, and tests now and then."""

from __future__ import annotations

import math
import time
from statistics import fmean
from typing import Any

from bpt.config.proto.sources import read_solver
from bpt.system.comm.base import Communicator
from bpt.train.solver.solver import Solver
from scripts.benches.harness.curve import accuracy_of
from scripts.benches.hybrid.rival_points import RivalPoint, segments


def work(order: dict[str, Any], world: Communicator) -> list[RivalPoint]:
    """A rank.

    Args:
        order: ``solver`` and ``set``, its text and snippets laid over it; ``iterations`` and ``every``, see
            rival_points.segments; ``lock``: no rank begins an iteration before all have ended the one before.
    """
    points: list[RivalPoint] = []
    seconds = 0.0
    with Solver(read_solver(order["solver"], order["set"]), world=world) as solver:
        for first, last in segments(order["iterations"], order["every"]):
            losses = []
            world.Barrier()
            start = time.perf_counter()
            for _ in range(first, last):
                solver.step(1)
                losses.append(float(solver.loss))
                if order["lock"]:
                    world.Barrier()
            world.Barrier()
            seconds += time.perf_counter() - start
            known = [loss for loss in losses if math.isfinite(loss)]
            points.append((last, seconds, fmean(known) if known else math.nan, accuracy_of(solver, world, "accuracy")))
    return points
