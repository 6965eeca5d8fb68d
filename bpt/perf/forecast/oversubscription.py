"""Oversubscription: ranks with less than one core each, and how much this slows them in a pipeline.

The speed of such a node is measured while all of its ranks compute, as in training without stages. In a pipeline some
ranks wait for others, and each rank that computes meanwhile has a larger part of a core.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bpt.parallel.pipeline.simulation import PlayedStage
from bpt.parallel.pipeline.simulation.trace import COMPUTE
from bpt.perf.forecast.arrangement import Arrangement
from bpt.perf.forecast.rank_links import Floats


def oversubscription(arrangement: Arrangement, played: Sequence[PlayedStage]) -> Floats:
    """Return (ranks,) the mean factor by which computing takes longer than on a core of the rank's own.

    Args:
        played: the simulated work of each stage if each rank has its own core.
    """
    a, found = arrangement, np.ones(arrangement.size)
    if (a.speeds.ranks_per_core == 1).all():
        return found
    of_ranks = np.array(a.cluster.hosts)
    starts, ends, host_of = zip(
        *(
            (*np.broadcast_arrays(event.start, event.end, a.shares)[:2], of_ranks[a.data_ranks[stage]])
            for stage, own in enumerate(played)
            for event in own.events
            if event.stream == COMPUTE
        ),
        strict=True,
    )
    moments, hosts = np.concatenate([*starts, *ends]), np.concatenate([*host_of, *host_of])
    change = np.repeat([1, -1], len(moments) // 2)
    order = np.lexsort((moments, hosts))  # by host, and by time on each
    moments, hosts, change = moments[order], hosts[order], change[order]
    for host, node in enumerate(a.cluster.nodes):
        if node.ranks_per_core == 1:
            continue
        own = slice(*np.searchsorted(hosts, (host, host + 1)))
        at_once = np.cumsum(change[own])[:-1]
        work = at_once * np.diff(moments[own])
        if work.any():
            found[of_ranks == host] = (work * np.maximum(1.0, at_once / node.cores)).sum() / work.sum()
    return found
