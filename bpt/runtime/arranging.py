"""Arranges the ranks of a run as a grid, if they and its nets can be divided so."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from bpt.comm.base import Communicator
from bpt.comm.grid import ProcessGrid
from bpt.graph.layer_graph import LayerGraph
from bpt.plan.spec import RunPlan
from bpt.plan.violations import violations_of_net, violations_of_ranks
from bpt.violation import refuse

LOG = logging.getLogger("bpt")


def arrange(
    plan: RunPlan, graph: LayerGraph, world: Communicator, tests: Sequence[LayerGraph] = (), on_gpu: bool = False
) -> ProcessGrid:
    """The ranks of ``world`` as ``parallel_param`` wants them; a collective call.

    Args:
        graph: of the net of the run.
        tests: of its test nets.
        on_gpu: this rank computes on one.

    Raises:
        PrototxtError: the ranks cannot be arranged so, or a net cannot be divided.
    """
    refuse(plan, violations_of_ranks(plan, world.size, on_gpu))
    grid = ProcessGrid.make(world, plan.parallel_param.num_stages, plan.parallel_param.num_shards)
    if world.size > 1 and plan.debug_info:
        LOG.warning("debug_info: blobs, and gradients before the exchange, are those of the first rank's samples")
    refuse(plan, violations_of_net(plan, graph, tests, world.size))
    return grid
