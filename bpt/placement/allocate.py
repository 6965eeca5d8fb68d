"""Allocators by name: from a problem to a placement."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from bpt.errors import PrototxtError
from bpt.placement.block import ALIKE, best_cut, fastest_cut, genes_of, least_excess
from bpt.placement.exact import best_placement
from bpt.placement.gabra import evolve
from bpt.placement.infeasible import infeasible
from bpt.placement.loads import Ints, Loads
from bpt.placement.manual import by_hand
from bpt.placement.objective import UNFIT, Objective, Profit, StepTime, score
from bpt.placement.partition import check_enough, partitions
from bpt.placement.placement import Placement
from bpt.placement.problem import Problem
from bpt.placement.start import good_placement
from bpt.proto import bpt_pb2 as pb

Param = pb.PipelineParameter
FINALISTS = 8  # of GABRA, that the clock decides between; fewer, if they have together more than
PLAYED = 4096  # partitions times micro-batches


def allocate(
    problem: Problem,
    param: pb.PipelineParameter,
    manual: Sequence[int | None] = (),
    clock: Callable[[Placement], float] | None = None,
) -> Placement:
    """Place a net on the problem's devices, so that each one has some of it and none more than its memory holds.

    ``StepTime`` does not know what a micro-batch waits for where a device has several runs of layers. So with a
    ``clock``, it has the last word for GABRA and EXACT under STEP_TIME: the best of GABRA's last population (eight,
    fewer in large cases) or EXACT's optimum, and BLOCK's placement are played. Of those that take at most ``ALIKE``
    more than the fastest, the one that fills memory most evenly is taken, as BLOCK chooses (``best_cut``). PROFIT is as
    printed.

    Args:
        param: its ``allocator`` chooses; ``objective``, ``partitions`` and ``gabra_param`` are for GABRA and EXACT.
        manual: for MANUAL: the stage that each layer names, or ``None``.
        clock: tells the seconds of an iteration with a placement.

    Raises:
        PrototxtError: more stages than partitions, no placement fits into the devices' memory (the message names a
            device and what it lacks), a number out of range, or an allocator that cannot do what is asked of it.
    """
    match param.allocator:
        case Param.MANUAL:
            return by_hand(problem, manual)
        case Param.BLOCK:
            return _block(problem)
    name = Param.Allocator.Name(param.allocator)
    if problem.rule == Param.DELAYED and len(problem.devices) > 1:
        raise PrototxtError(
            f"schedule: DELAYED needs consecutive layers on each stage, in the stages' order, and allocator: {name} "
            "does not keep to that; set allocator: BLOCK or MANUAL"
        )
    loads = _divided(problem, param.partitions)
    search = _exact if param.allocator == Param.EXACT else _gabra
    start = good_placement(loads)
    found: _Found = start[None], ()
    if param.objective == Param.STEP_TIME or not _fits(loads, start):
        found = search(StepTime(loads), start, param)
    best = found[0][0]
    if not _fits(loads, best):
        raise infeasible(loads, best, f"allocator: {name} finds no placement that fits")
    if param.objective == Param.PROFIT:
        found = search(Profit(loads, best), best, param)
    finalists, convergence = found
    placements = [Placement(loads.starts, tuple(genes), convergence) for genes in finalists.tolist()]
    if clock is None or param.objective == Param.PROFIT:
        return placements[0]
    most = max(1, min(FINALISTS, PLAYED // (loads.n * problem.micro_batches)))
    return _best([*placements[:most], *_cut(problem, convergence)], problem, clock)


def _divided(problem: Problem, count: int) -> Loads:
    """The partitions; by rule (``count`` 0), where memory is scarce, BLOCK's borders are among theirs.

    For if memory must be filled to the brim, what is joined may be too coarse: no placement of it is then as good as
    BLOCK's, or none fits at all.
    """
    loads = Loads(problem, partitions(problem, count))
    if count or loads.ample:
        return loads
    every = Loads(problem, problem.cuts)
    cut = fastest_cut(every)
    return loads if cut is None else Loads(problem, sorted({*loads.starts, *(every.starts[start] for start in cut)}))


def _best(placements: Sequence[Placement], problem: Problem, clock: Callable[[Placement], float]) -> Placement:
    """Of those about as fast as the fastest, that whose fullest device is filled least, and its emptiest one most."""
    seconds = [clock(placement) for placement in placements]
    limit = min(seconds) + ALIKE * abs(min(seconds))

    def filled(index: int) -> tuple[float, float, float]:
        placement = placements[index]
        fills = Loads(problem, placement.starts).fills(np.array([placement.stages], dtype=np.int64))
        return float(fills.max()), -float(fills.min()), seconds[index]

    return placements[min((i for i, time in enumerate(seconds) if time <= limit), key=filled)]


_Found: TypeAlias = tuple[Ints, tuple[float, ...]]  # chromosomes (K, n), the best first, and how GABRA converged


def _gabra(objective: Objective, start: Ints, param: pb.PipelineParameter) -> _Found:
    evolution = evolve(objective, start, param.gabra_param)
    return evolution.finalists, evolution.convergence


def _exact(objective: Objective, start: Ints, param: pb.PipelineParameter) -> _Found:
    return best_placement(objective, start)[None], ()


def _fits(loads: Loads, genes: Ints) -> bool:
    return float(score(StepTime(loads), genes[None])[0]) < UNFIT


def _block(problem: Problem) -> Placement:
    check_enough(problem)
    for placement in _cut(problem):
        return placement
    loads = Loads(problem, problem.cuts)
    nearest = np.array(genes_of(least_excess(loads), loads.n))
    raise infeasible(loads, nearest, "allocator: BLOCK finds no cut that fits")


def _cut(problem: Problem, convergence: tuple[float, ...] = ()) -> list[Placement]:
    """BLOCK's placement, if one fits."""
    loads = Loads(problem, problem.cuts)
    cut = best_cut(loads)
    if cut is None:
        return []
    return [Placement(tuple(loads.starts[start] for start in cut), tuple(range(loads.m)), convergence)]
