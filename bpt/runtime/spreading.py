"""Decides how a run is spread over its ranks, and refuses what cannot be."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

import torch

from bpt.balance import Balance, Uniform
from bpt.comm.base import Communicator
from bpt.errors import LayerError, PrototxtError
from bpt.graph.layer_graph import LayerGraph
from bpt.plan.dividing import is_dividable
from bpt.plan.pipeline_rules import without_effect
from bpt.plan.stage_placement import described, stage
from bpt.plan.staging import Staging
from bpt.proto import bpt_pb2 as pb
from bpt.proto.sources import SolverSource
from bpt.runtime.agreement import outcome_of_first
from bpt.runtime.arranging import arrange
from bpt.runtime.balancing import static_balance
from bpt.runtime.parallel import Parallel

LOG = logging.getLogger("bpt")


def spread(
    solver: SolverSource,
    graph: LayerGraph,
    world: Communicator,
    device: torch.device,
    batch_factor: int | None = None,
    tests: Sequence[LayerGraph] = (),
    cuts: tuple[int, ...] = (),
) -> Parallel:
    """The parallelisation of ``solver``, whose training net is ``graph``, on the ranks of ``world``; a collective call.

    Args:
        batch_factor: see Parallel.
        tests: the test nets, which are spread alike.
        cuts: micro-batches of a run without stages; see Staging.

    Raises:
        PrototxtError: the ranks cannot be arranged as it says, or a layer cannot be spread.
        FileError: the profile of ``balance: STATIC`` is missing or is not of this run.
    """
    param = solver.param.parallel_param
    if param.inner_param.engine == pb.InnerParameter.TASK_DAG and device.type != "cpu":
        raise PrototxtError(
            "parallel_param: inner_param { engine: TASK_DAG } divides work among the threads of a CPU; add --set "
            "'solver_mode: CPU', or leave it out",
            solver.origin("parallel_param", "inner_param", "engine"),
        )
    grid = arrange(solver, graph, world, tests)

    def staged() -> Staging | None:
        return stage(solver, graph, grid.replicas)

    balance: Balance = Uniform()
    if param.balance == pb.ParallelParameter.STATIC:
        balance = static_balance(solver, graph, grid, device)
    staging = Staging.alone(graph, cuts) if cuts else outcome_of_first(world, None if world.rank else staged)
    keeps_batches = world.size > 1 and not is_dividable(graph)
    parallel = Parallel(param, grid, balance, batch_factor, staging, keeps_batches)
    try:
        for each in (graph, *tests):
            parallel.parts(each)
    except LayerError:
        raise
    except PrototxtError as error:  # it knows of no place
        raise PrototxtError(f"parallel_param: {error}", solver.origin("parallel_param", "num_shards")) from None
    if world.size > 1:
        LOG.info("Parallel: %s", parallel.described)
    if staging and param.num_stages > 1:
        for line in described(staging):
            LOG.info("%s", line)
    for remark in (*_unused(param, device), *without_effect(param, graph)):
        LOG.warning("parallel_param: %s", remark)
    if solver.param.HasField("layer_wise_reduce"):
        LOG.warning("layer_wise_reduce has no effect: gradients travel while backward goes on; see parallel_param")
    return parallel


def _unused(param: pb.ParallelParameter, device: torch.device) -> Iterator[str]:
    """What is set but has no effect, field by field: somebody may have forgotten what goes with it."""
    exchange, balance = pb.ParallelParameter.Exchange.Name(param.exchange), param.balance
    needs = {
        "cgdp_param": ("exchange: CGDP", exchange == "CGDP"),
        **dict.fromkeys(("agwu_param", "server", "ship_data"), ("exchange: SGWU, AGWU or ASGD", False)),
        "fc_param": ("num_shards above 1", param.num_shards > 1),
        "pipeline_param": ("num_stages above 1", param.num_stages > 1),
    }
    for field, (wanted, given) in needs.items():
        if param.HasField(field) and not given:
            yield f"{field} has no effect without {wanted}"
    if exchange == "CGDP":
        yield from _unused_in_a_search(param.cgdp_param)
    if param.inner_param.engine == pb.InnerParameter.AUTO and (param.num_shards > 1 or device.type != "cpu"):
        where = "with num_shards above 1" if device.type == "cpu" else "on a GPU"
        yield f"inner_param {{ engine: AUTO }} is LIBRARY {where}"
    if param.balance_param.HasField("profile") and balance != pb.ParallelParameter.STATIC:
        yield "balance_param { profile } has no effect without balance: STATIC"
    for field in ("num_batches", "rule"):
        if param.balance_param.HasField(field) and balance != pb.ParallelParameter.IDPA:
            yield f"balance_param {{ {field} }} has no effect without balance: IDPA"


def _unused_in_a_search(param: pb.CgdpParameter) -> Iterator[str]:
    model = param.chunking == pb.CgdpParameter.MODEL
    for field in ("choice", "step", "range", "interval"):
        if param.HasField(field) and param.chunk_size:
            yield f"cgdp_param {{ {field} }} has no effect with chunk_size: nothing is searched"
        elif param.HasField(field) and model and field in ("step", "range"):
            yield f"cgdp_param {{ {field} }} has no effect with chunking: MODEL: the cost model says what is tried"
