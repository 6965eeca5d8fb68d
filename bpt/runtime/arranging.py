"""Arranges the ranks of a run as a grid, if its nets can be divided among them."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from bpt.comm.base import Communicator
from bpt.comm.grid import ProcessGrid
from bpt.errors import PrototxtError, UsageError
from bpt.graph.layer_graph import LayerGraph
from bpt.plan.dividing import check_test, check_training
from bpt.proto import bpt_pb2 as pb
from bpt.proto.sources import SolverSource

LOG = logging.getLogger("bpt")


def arrange(
    solver: SolverSource, graph: LayerGraph, world: Communicator, tests: Sequence[LayerGraph] = ()
) -> ProcessGrid:
    """The ranks of ``world`` as ``parallel_param`` wants them; a collective call.

    Args:
        graph: of the net of the run.
        tests: of its test nets.

    Raises:
        PrototxtError: the ranks cannot be arranged so, or a net cannot be divided.
    """
    param = solver.param.parallel_param
    try:
        grid = ProcessGrid.make(world, param.num_stages, param.num_shards)
    except UsageError as error:
        raise PrototxtError(f"parallel_param: {error}", solver.origin("parallel_param")) from None
    if grid.shards > 1 and solver.param.debug_info:
        raise PrototxtError(
            "debug_info: true looks at every layer, and those that are split over ranks (num_shards) are nowhere whole",
            solver.origin("debug_info"),
        )
    if world.size > 1:
        if solver.param.debug_info:
            LOG.warning("debug_info: blobs, and gradients before the exchange, are those of the first rank's samples")
        if graph.phase == pb.TRAIN:
            check_training(graph, param)
        for test in tests if graph.phase == pb.TRAIN else (graph, *tests):
            check_test(test, param)
    return grid
