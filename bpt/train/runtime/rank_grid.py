"""Arranges the ranks of a run as a grid, if they and its nets can be divided so."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from bpt.base.violation import refuse
from bpt.config.plan.run_plan import RunPlan
from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_graph import LayerGraph
from bpt.system.comm.base import Communicator
from bpt.system.comm.grid import ProcessGrid
from bpt.train.rules.violations import violations_of_net, violations_of_ranks

LOG = logging.getLogger("bpt")


def make_grid(
    plan: RunPlan, graph: LayerGraph, world: Communicator, tests: Sequence[LayerGraph] = (), on_gpu: bool = False
) -> ProcessGrid:
    """Arrange the ranks of ``world`` in the grid of ``parallel_param``; a collective call.

    Args:
        graph: the graph of the run's net.
        tests: the graphs of its test nets.
        on_gpu: whether this rank computes on a GPU.

    Raises:
        TooManyStagesError: the net cannot be cut into so many stages, on any number of ranks.
        PrototxtError: the ranks do not form such a grid, or a net cannot be divided.
    """
    if graph.phase == pb.TRAIN and plan.parallel_param.depth > 1:
        # Only what this run needs; see docs/architecture.md.
        from bpt.parallel.pipeline.stage_placement import check_stage_count  # noqa: PLC0415

        check_stage_count(plan, graph)
    refuse(plan, violations_of_ranks(plan, world.size, on_gpu))
    grid = ProcessGrid.make(world, plan.parallel_param.layout(world.size))
    if world.size > 1 and plan.debug_info:
        LOG.warning("debug_info: blobs, and gradients before the exchange, are those of the first rank's samples")
    refuse(plan, violations_of_net(plan, graph, tests, world.size))
    return grid
