"""Ranks that have less than a core each: how much slower they compute by how many of a node do at once.

The speed of such a node is that of its ranks while all of them compute, as training without stages has it. In a
pipeline some wait for others, and those that compute meanwhile have more of a core each.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bpt.parallel.pipeline.simulation import PlayedStage
from bpt.parallel.pipeline.simulation.trace import COMPUTE
from bpt.perf.forecast.arrangement import Arrangement, Floats


def oversubscription(arrangement: Arrangement, played: Sequence[PlayedStage]) -> Floats:
    """(ranks,) how many times as long as on a core of its own each computes, in the mean over what it computes.

    Args:
        played: what stages do, if each rank has a core of its own.
    """
    a, found = arrangement, np.ones(arrangement.size)
    if (a.crowd == 1).all():
        return found
    of_ranks = np.array(a.cluster.hosts)
    begun, ended, of_sharers = zip(
        *(
            (*np.broadcast_arrays(event.start, event.end, a.shares)[:2], of_ranks[a.sharers[stage]])
            for stage, own in enumerate(played)
            for event in own.events
            if event.stream == COMPUTE
        ),
        strict=True,
    )
    moments, hosts = np.concatenate([*begun, *ended]), np.concatenate([*of_sharers, *of_sharers])
    change = np.repeat([1, -1], len(moments) // 2)
    order = np.lexsort((moments, hosts))  # by hosts, and each one's in time
    moments, hosts, change = moments[order], hosts[order], change[order]
    for host, node in enumerate(a.cluster.nodes):
        if node.crowd == 1:
            continue
        own = slice(*np.searchsorted(hosts, (host, host + 1)))
        at_once = np.cumsum(change[own])[:-1]
        work = at_once * np.diff(moments[own])
        if work.any():
            found[of_ranks == host] = (work * np.maximum(1.0, at_once / node.cores)).sum() / work.sum()
    return found
