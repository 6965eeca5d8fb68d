"""Allocators by name: from a problem to a placement."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bpt.placement.block import best_cut, genes_of, least_excess
from bpt.placement.infeasible import infeasible
from bpt.placement.loads import Loads
from bpt.placement.manual import by_hand
from bpt.placement.partition import check_enough
from bpt.placement.placement import Placement
from bpt.placement.problem import Problem
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
    if param.allocator == Param.MANUAL:
        return by_hand(problem, manual)
    if param.allocator == Param.BLOCK:
        return _block(problem)
    raise NotImplementedError


def _block(problem: Problem) -> Placement:
    check_enough(problem)
    loads = Loads(problem, problem.cuts)
    cut = best_cut(loads)
    if cut is None:
        raise infeasible(loads, np.array(genes_of(least_excess(loads), loads.n)), "no cut fits")
    return Placement(tuple(loads.starts[start] for start in cut), tuple(range(loads.m)))
