"""Stages that a placement gives next to nothing to do."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bpt.placement.loads import Loads
from bpt.placement.problem import Problem

LITTLE = 0.01  # of the net's work


def idle_stages(problem: Problem, starts: Sequence[int], stages: Sequence[int]) -> list[str]:
    """What a user is told of each stage that has less than 1 % of the work, in a line; nothing if there is no work.

    Args:
        starts: the first layer of each partition, and
        stages: its stage.
    """
    if not problem.work:
        return []
    loads, genes = Loads(problem, starts), np.array([stages], dtype=np.int64)
    parts = loads.sums(loads.work, genes)[0] / problem.work
    held = loads.held(genes)[0]
    filled = held / held.sum()
    return [
        f"stage {stage} ({problem.devices[stage].name}) has {parts[stage]:.1%} of the work and {filled[stage]:.1%} of "
        "what is held in memory; if that allows, fewer stages may be as fast"
        for stage in np.flatnonzero(parts < LITTLE).tolist()
    ]
