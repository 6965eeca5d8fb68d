"""Ranks that have less than a core each: how much slower they compute by how many of a node do at once.

The speed of such a node is that of its ranks while all of them compute, as training without stages has it. In a
pipeline some wait for others, and those that compute meanwhile have more of a core each.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bpt.forecast.arrangement import Arrangement, Floats
from bpt.schedule.pipeline.simulation import PlayedStage
from bpt.schedule.pipeline.simulation.trace import COMPUTE


def slowdowns(arrangement: Arrangement, played: Sequence[PlayedStage]) -> Floats:
    """(ranks,) how many times as long as on a core of its own each computes, in the mean over what it computes.

    Args:
        played: what stages do, if each rank has a core of its own.
    """
    a, found = arrangement, np.ones(arrangement.size)
    hosts = np.array(a.cluster.hosts)
    for host, node in enumerate(a.cluster.nodes):
        if node.crowd == 1:
            continue
        times = [
            np.broadcast_to(moment, a.shares.shape)[hosts[a.sharers[stage]] == host]
            for stage, own in enumerate(played)
            for event in own.events
            if event.stream == COMPUTE
            for moment in (event.start, event.end)
        ]
        begun, ended = np.concatenate(times[::2]), np.concatenate(times[1::2])
        moments = np.concatenate([begun, ended])
        order = np.argsort(moments, kind="stable")
        at_once = np.cumsum(np.repeat([1, -1], len(begun))[order])[:-1]
        work = at_once * np.diff(moments[order])
        if work.any():
            found[hosts == host] = (work * np.maximum(1.0, at_once / node.cores)).sum() / work.sum()
    return found
