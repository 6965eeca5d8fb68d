"""``bpt time --profile``: measures the speeds of the ranks of a run and writes them to a file, for balance STATIC."""

from __future__ import annotations

import logging
import os

import torch

from bpt.balance import Uniform
from bpt.balance.batch_shares import lines
from bpt.balance.profile import Profile, static_from, write_profile
from bpt.comm.agreement import check_same
from bpt.comm.base import Communicator
from bpt.errors import FileError, PrototxtError, UserError
from bpt.graph.layer_graph import LayerGraph
from bpt.layers.base import batch_of
from bpt.net_graph import build_graph_of
from bpt.plan.dividing import violations_measured
from bpt.plan.spec import ParallelSpec, RunPlan
from bpt.plan.violations import violations_in_step
from bpt.proto import bpt_pb2 as pb
from bpt.runtime.agreement import facts_of
from bpt.runtime.arranging import arrange
from bpt.runtime.balancing import division_of
from bpt.runtime.rank_facts import facts
from bpt.speeds.step_benchmark import StepBenchmark
from bpt.speeds.survey import Limits, measure_speed
from bpt.version import VERSION
from bpt.violation import refuse

LOG = logging.getLogger("bpt")


def profile(
    plan: RunPlan, device: torch.device, world: Communicator, path: str, limits: Limits | None = None
) -> Profile:
    """Measure how fast each rank trains, log it, and write it to the file at ``path``; a collective call.

    Every rank runs the whole training net, without any exchange; nothing is tested, and no weights change.

    Raises:
        PrototxtError: the net is wrong.
        FileError: there is no such folder to write to.
        WriteError: the file could not be written.
    """
    if problem := world.bcast(no_place_for(path) if world.rank == 0 else ""):
        raise FileError(path, problem)
    plan = plan.training_only()
    uniform = plan.with_parallel(balance=pb.ParallelParameter.UNIFORM)  # the profile for another is yet to be made
    refuse(uniform, violations_in_step(uniform))
    graph = build_graph_of(plan.train)
    check_same(world, facts_of(plan, graph))
    refuse(plan, violations_measured(graph))
    grid = arrange(uniform, graph, world)
    if not batch_of(graph):
        raise PrototxtError(
            "the training net has no layer that makes batches; there is nothing to divide", plan.origin("net")
        )
    work = StepBenchmark(
        graph,
        plan,
        device,
        ranks=world.size,
        sharers=world.allgather(_memory_of(device, world)).count(_memory_of(device, world)),
        agree=lambda seconds: float(max(world.allgather(seconds))),
    )
    division = division_of(uniform, graph, grid)
    batch = whole_batch(graph, plan.parallel_param, world.size)
    LOG.info("Profile: measuring %d ranks, for batches of %d samples in all", world.size, batch)
    try:
        speed = measure_speed(work, plan.engine, batch, world, limits, division)
    finally:
        work.close()
    speeds = tuple(world.allgather(speed))
    result = Profile(facts(plan, graph, device, world), speeds, batch, graph.name, VERSION)
    _log_prospects(result)
    if world.rank == 0:
        write_profile(result, path)
        LOG.info("Profile: written to %s", path)
    return result


def whole_batch(graph: LayerGraph, parallel: ParallelSpec, ranks: int) -> int:
    """The samples of a batch of the training net ``graph``, of all ranks together."""
    if parallel.batch_scope == pb.ParallelParameter.REPLICA:
        return batch_of(graph) * (ranks // (parallel.num_stages * parallel.num_shards))
    return batch_of(graph)


def _log_prospects(result: Profile) -> None:
    balance = static_from(result)
    ranks = len(result.speeds)
    for rank, speed in enumerate(result.speeds):
        LOG.info("Profile: rank %d: %d samples fit into memory", rank, speed.cap)
    try:
        shares = balance.shares(result.batch, ranks)
    except UserError as error:
        LOG.warning("Profile: %s", error)
        return
    for line in lines(shares, balance.predicted_seconds(shares)):
        LOG.info("%s", line)
    even = balance.predicted_seconds(Uniform().shares(result.batch, ranks))
    best = max(balance.predicted_seconds(shares))
    LOG.info(
        "Balance: without the exchange an iteration takes %.4g ms with STATIC, %.4g ms with UNIFORM (%.3g times)",
        best * 1e3,
        max(even) * 1e3,
        max(even) / best,
    )


def no_place_for(path: str) -> str:
    """Why no file can be written at ``path``; empty if it can. Better known before a long measurement than after."""
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        return f'cannot be written: there is no folder "{folder}"'
    if os.path.isdir(path):
        return "cannot be written: there is a folder of that name"
    if not os.access(folder, os.W_OK):
        return f'cannot be written: no permission to write in the folder "{folder}"'
    return ""


def _memory_of(device: torch.device, world: Communicator) -> tuple[str, str]:
    """A name for the memory that this rank computes in."""
    if device.type == "cuda":
        return world.host, str(getattr(torch.cuda.get_device_properties(device), "uuid", device.index))
    return world.host, "main"
