"""Allocators by name: from a problem to a placement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from bpt.errors import PrototxtError
from bpt.placement.block import best_cut, genes_of, least_excess
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


def allocate(problem: Problem, param: pb.PipelineParameter, manual: Sequence[int | None] = ()) -> Placement:
    """Place a net on the problem's devices, so that each one has some of it and none more than its memory holds.

    Args:
        param: its ``allocator`` chooses; ``objective``, ``partitions`` and ``gabra_param`` are for GABRA and EXACT.
        manual: for MANUAL: the stage that each layer names, or ``None``.

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
    loads = Loads(problem, partitions(problem, param.partitions))
    search = _exact if param.allocator == Param.EXACT else _gabra
    start = good_placement(loads)
    found: _Found = start, ()
    if param.objective == Param.STEP_TIME or not _fits(loads, start):
        found = search(StepTime(loads), start, param)
    if not _fits(loads, found[0]):
        raise infeasible(loads, found[0], f"allocator: {name} finds no placement that fits")
    if param.objective == Param.PROFIT:
        found = search(Profit(loads, found[0]), found[0], param)
    genes, convergence = found
    return Placement(loads.starts, tuple(genes.tolist()), convergence)


_Found: TypeAlias = tuple[Ints, tuple[float, ...]]


def _gabra(objective: Objective, start: Ints, param: pb.PipelineParameter) -> _Found:
    evolution = evolve(objective, start, param.gabra_param)
    return evolution.genes, evolution.convergence


def _exact(objective: Objective, start: Ints, param: pb.PipelineParameter) -> _Found:
    return best_placement(objective, start), ()


def _fits(loads: Loads, genes: Ints) -> bool:
    return float(score(StepTime(loads), genes[None])[0]) < UNFIT


def _block(problem: Problem) -> Placement:
    check_enough(problem)
    loads = Loads(problem, problem.cuts)
    cut = best_cut(loads)
    if cut is None:
        nearest = np.array(genes_of(least_excess(loads), loads.n))
        raise infeasible(loads, nearest, "allocator: BLOCK finds no cut that fits")
    return Placement(tuple(loads.starts[start] for start in cut), tuple(range(loads.m)))
